"""Secret: values that should not lie about in the open."""

import base64
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1.config_map import SEALED, SIZE_LIMIT, decoded_size, validate_keys
from kedge.api.model import Bytes, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError

OPAQUE = "Opaque"
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
DOCKERCFG = "kubernetes.io/dockercfg"
DOCKER_CONFIG_JSON = "kubernetes.io/dockerconfigjson"
BASIC_AUTH = "kubernetes.io/basic-auth"
SSH_AUTH = "kubernetes.io/ssh-auth"
TLS = "kubernetes.io/tls"
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"

_DOCKER_KEYS = {DOCKERCFG: ".dockercfg", DOCKER_CONFIG_JSON: ".dockerconfigjson"}


class Secret(Object):
    """Confidential values by key, for pods to use."""

    data: Mapping[str, Bytes] = {}
    """The values, in base64."""
    immutable: bool | None = None
    """True forbids any later change of the values, and of this field."""
    stringData: Mapping[str, str] = {}
    """Values as plain text: written into data, where they win, and never read back."""
    type: str = ""
    """The purpose of the values; some types require certain keys. Cannot be changed."""


def default(obj: Secret) -> Secret:
    if obj.stringData:
        texts = {key: encoded(text) for key, text in obj.stringData.items()}
        obj = replace(obj, data={**obj.data, **texts}, stringData={})
    return obj if obj.type else replace(obj, type=OPAQUE)


def encoded(text: str) -> str:
    """Plain text as the data of a Secret holds it."""
    return base64.b64encode(text.encode()).decode()


def validate(obj: Secret) -> Iterator[FieldError]:
    yield from validate_keys(obj.data, "data")
    if sum(map(decoded_size, obj.data.values())) > SIZE_LIMIT:
        yield FieldError.too_long("data", SIZE_LIMIT)
    if obj.type != OPAQUE:
        yield from _what_the_type_demands(obj)


def _what_the_type_demands(obj: Secret) -> Iterator[FieldError]:
    match obj.type:
        case "kubernetes.io/service-account-token":
            if not obj.metadata.annotations.get(SERVICE_ACCOUNT_NAME):
                yield FieldError.required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]")
        case "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson":
            yield from _docker_config(obj.data, _DOCKER_KEYS[obj.type])
        case "kubernetes.io/basic-auth":
            if "username" not in obj.data and "password" not in obj.data:
                yield from _missing(obj.data, "username", "password")
        case "kubernetes.io/ssh-auth":
            if not obj.data.get("ssh-privatekey"):
                yield FieldError.required("data[ssh-privatekey]")
        case "kubernetes.io/tls":
            yield from _missing(obj.data, "tls.crt", "tls.key")


def _missing(data: Mapping[str, str], *keys: str) -> Iterator[FieldError]:
    for key in keys:
        if key not in data:
            yield FieldError.required(f"data[{key}]")


def _docker_config(data: Mapping[str, str], key: str) -> Iterator[FieldError]:
    if key not in data:
        yield FieldError.required(f"data[{key}]")
        return
    try:
        msgspec.json.decode(base64.b64decode(data[key]), type=dict[str, object] | None)
    except ValueError as error:
        yield FieldError.invalid(f"data[{key}]", "<secret contents redacted>", str(error))


def validate_update(new: Secret, old: Secret) -> Iterator[FieldError]:
    yield from rules.unchanged("type", new.type, old.type)
    if not old.immutable:
        return
    if not new.immutable:
        yield FieldError.forbidden("immutable", SEALED)
    if new.data != old.data:
        yield FieldError.forbidden("data", SEALED)


def warn(obj: Secret) -> Iterable[str]:
    if obj.type != TLS:
        return
    for key, part in (("tls.crt", "certificate"), ("tls.key", "key")):
        if b"-----BEGIN " not in base64.b64decode(obj.data.get(key, "")):
            yield f"tls: failed to find any PEM data in {part} input"
            return


RESOURCE: Resource[Secret] = Resource(
    type=Secret,
    plural="secrets",
    strategy=Strategy(
        counts_generation=False,
        default=default,
        validate=validate,
        validate_update=validate_update,
        warnings=warn,
    ),
    presentation=Presentation(
        fields={"type": lambda obj: obj.type},
        columns=[
            name_column(),
            Column(
                name="Type",
                cell=lambda obj: obj.type,
                description="What the values are for.",
            ),
            Column(
                name="Data",
                cell=lambda obj: len(obj.data),
                description="How many values there are.",
            ),
            age_column(),
        ],
    ),
)
