"""EncryptionConfiguration: which resources are stored encrypted, and with which keys."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from kedge.apiserver import configuration_file
from kedge.machinery.durations import parse_duration
from kedge.machinery.errors import FieldError

KIND: Final = "EncryptionConfiguration"
API_VERSIONS: Final = ("apiserver.config.k8s.io/v1",)
_AES_SIZES: Final = (16, 24, 32)
_SECRETBOX_SIZES: Final = (32,)
_UNSERVED: Final = ("apiserveripinfo", "serviceipallocations", "servicenodeportallocations")


class _EncryptionPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file, in which every field is known."""


class EncryptionKey(_EncryptionPart, frozen=True):
    """A named key."""

    name: str = ""
    secret: str = ""

    @property
    def material(self) -> bytes:
        return base64.b64decode(self.secret, validate=True)


class EncryptionKeys(_EncryptionPart, frozen=True):
    """The keys of a provider; the first one writes, all read."""

    keys: Sequence[EncryptionKey] = ()


class KmsConfiguration(_EncryptionPart, frozen=True):
    """A key management service."""

    api_version: str = msgspec.field(name="apiVersion", default="v1")
    name: str = ""
    endpoint: str = ""
    cachesize: int | None = None
    timeout: str = "3s"

    @property
    def seconds(self) -> float:
        """The time for one call."""
        return parse_duration(self.timeout) / 1e9

    @property
    def socket(self) -> str:
        return urlsplit(self.endpoint).path


class EncryptionProvider(_EncryptionPart, frozen=True):
    """One provider: exactly one of its fields is set."""

    aesgcm: EncryptionKeys | None = None
    aescbc: EncryptionKeys | None = None
    secretbox: EncryptionKeys | None = None
    identity: dict[str, Any] | None = None
    kms: KmsConfiguration | None = None


class EncryptedResources(_EncryptionPart, frozen=True):
    """Resources, and their providers in order: the first one writes, all read."""

    resources: Sequence[str] = ()
    providers: Sequence[EncryptionProvider] = ()


class EncryptionConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""
    resources: Sequence[EncryptedResources] = ()


def read(path: Path) -> EncryptionConfiguration:
    """Return the configuration in a file; a ConfigurationFileError says what is wrong, without
    quoting a key."""
    return configuration_file.read(path, parse)


def parse(document: Any) -> EncryptionConfiguration:
    """Return the configuration in a document; ValueError if it is malformed or invalid."""
    found = configuration_file.parsed(document, EncryptionConfiguration, KIND, API_VERSIONS)
    configuration_file.raise_errors(errors(found))
    return found


def errors(file: EncryptionConfiguration) -> Iterator[FieldError]:
    """Yield what is wrong with the file, in upstream's order."""
    if not file.resources:
        yield FieldError.required("resources", "at least one resources is required")
    taken: set[str] = set()
    for i, entry in enumerate(file.resources):
        at = f"resources[{i}]"
        names, providers = f"{at}.resources", f"{at}.providers"
        if not entry.resources:
            yield FieldError.required(names, f"at least one {names} is required")
        yield from _overlaps(names, entry.resources)
        for j, name in enumerate(entry.resources):
            yield from _name_errors(f"{names}[{j}]", name)
        if not entry.providers:
            yield FieldError.required(providers, f"at least one {providers} is required")
        for j, provider in enumerate(entry.providers):
            yield from _provider_errors(f"{providers}[{j}]", provider, taken)


def split(resource: str) -> tuple[str, str]:
    """Return plural and group of a name such as `deployments.apps`."""
    plural, _, group = resource.partition(".")
    return plural, group


def _overlaps(at: str, resources: Sequence[str]) -> Iterator[FieldError]:
    names = [split(each) for each in resources]
    if len(set(names)) < len(names):
        why = "the same resource cannot be specified multiple times"
        yield FieldError.invalid(at, list(resources), why)
    everything = ("*", "*") in names and len(names) > 1
    groups = [group for plural, group in names if plural == "*"]
    masked = any(group in groups and plural != "*" for plural, group in names)
    if everything or masked:
        why = (
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is"
            " not allowed as they will be masked"
        )
        yield FieldError.invalid(at, list(resources), why)


def _name_errors(at: str, name: str) -> Iterator[FieldError]:
    plural, group = split(name)
    why = ""
    if name != name.lower():
        why = "resource name should not contain capital letters"
    elif name == "*":
        why = (
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all"
            " resources"
        )
    elif name in _UNSERVED:
        why = "resources which do not have REST API/s cannot be encrypted"
    elif group == "events.k8s.io":
        why = (
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use"
            " 'events' instead in the config file"
        )
    elif group == "extensions":
        why = "'extensions' group has been removed and cannot be used for encryption"
    elif group == "*" and plural != "*":
        why = "encrypting the same resource across groups is not supported"
    if why:
        yield FieldError.invalid(at, name, why)


def _kms_errors(at: str, kms: KmsConfiguration, taken: set[str]) -> Iterator[FieldError]:
    if not kms.name:
        yield FieldError.required(f"{at}.name", "name is a mandatory field for a provider")
    if ":" in kms.name:
        why = f"invalid KMS provider name {kms.name}, must not contain ':'"
        yield FieldError.invalid(f"{at}.name", kms.name, why)
    if kms.name in taken:
        why = f"duplicate KMS provider name {kms.name}, names must be unique"
        yield FieldError.invalid(f"{at}.name", kms.name, why)
    taken.add(kms.name)
    yield from _timeout_errors(f"{at}.timeout", kms.timeout)
    yield from _endpoint_errors(f"{at}.endpoint", kms.endpoint)
    if kms.api_version == "v1":
        why = "KMS v1 is not supported: use v2"
        yield FieldError.invalid(f"{at}.apiVersion", kms.api_version, why)
    elif kms.api_version != "v2":
        why = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"
        yield FieldError.invalid(f"{at}.apiVersion", kms.api_version, why)
    elif kms.cachesize is not None:
        why = "cachesize is not supported in v2"
        yield FieldError.invalid(f"{at}.cachesize", kms.cachesize, why)


def _timeout_errors(at: str, timeout: str) -> Iterator[FieldError]:
    try:
        is_positive = parse_duration(timeout) > 0
    except ValueError as error:
        yield FieldError.invalid(at, timeout, str(error))
        return
    if not is_positive:
        yield FieldError.invalid(at, timeout, "timeout should be a positive value")


def _endpoint_errors(at: str, endpoint: str) -> Iterator[FieldError]:
    if not endpoint:
        yield FieldError.invalid(at, "", "endpoint is a mandatory field for a kms")
        return
    try:
        parts = urlsplit(endpoint)
    except ValueError as error:
        why = f"invalid endpoint for kms provider, error: {error}"
        yield FieldError.invalid(at, endpoint, why)
        return
    if parts.scheme != "unix":
        why = f'unsupported scheme "{parts.scheme}" for KMS provider, only unix is supported'
        yield FieldError.invalid(at, endpoint, why)
    elif not parts.path.startswith("/") or parts.path.startswith("/@"):
        yield FieldError.invalid(at, endpoint, "must be unix:// and the absolute path of a socket")


def _provider_errors(
    at: str, provider: EncryptionProvider, taken: set[str]
) -> Iterator[FieldError]:
    sizes = {"aesgcm": _AES_SIZES, "aescbc": _AES_SIZES, "secretbox": _SECRETBOX_SIZES}
    given = [name for name in ("aesgcm", "aescbc", "secretbox", "identity", "kms")
             if getattr(provider, name) is not None]  # fmt: skip
    if not given:
        why = "provider does not contain any of the expected providers"
        yield FieldError.invalid(at, "", f"{why}: KMS, AESGCM, AESCBC, Secretbox, Identity")
    elif len(given) > 1:
        why = (
            "more than one provider specified in a single element, should split into different"
            " list elements"
        )
        yield FieldError.invalid(at, "REDACTED", why)
    elif provider.kms is not None:
        yield from _kms_errors(f"{at}.kms", provider.kms, taken)
    elif given != ["identity"]:
        keys = getattr(provider, given[0])
        yield from _key_errors(f"{at}.{given[0]}.keys", keys.keys, sizes[given[0]])


def _key_errors(
    at: str, keys: Sequence[EncryptionKey], sizes: tuple[int, ...]
) -> Iterator[FieldError]:
    if not keys:
        yield FieldError.required(at, "at least one keys is required")
    for i, key in enumerate(keys):
        if not key.name:
            yield FieldError.required(f"{at}[{i}].name", "name is a mandatory field for a key")
        field = f"{at}[{i}].secret"
        if not key.secret:
            yield FieldError.required(field, "secret is a mandatory field for a key")
            continue
        try:
            size = len(key.material)
        except binascii.Error:
            yield FieldError.invalid(field, "REDACTED", "secrets must be base64 encoded")
            continue
        if size not in sizes:
            listed = " ".join(map(str, sizes))
            why = f"secret is not of the expected length, got {size}, expected one of [{listed}]"
            yield FieldError.invalid(field, "REDACTED", why)
