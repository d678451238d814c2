"""Rules for references: to keys of other objects, and to fields of the pod itself."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from kedge.api import rules
from kedge.api.core_v1 import path_rules
from kedge.api.core_v1.references import (
    ConfigMapKeySelector,
    FileKeySelector,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretKeySelector,
)
from kedge.machinery import names
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity

VARIABLE_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
"""Fields that a variable can show, besides single labels and annotations."""

FILE_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
"""Fields that a file can show, besides single labels and annotations."""

_KNOWN_FIELDS: Final = {
    *VARIABLE_FIELDS,
    *FILE_FIELDS,
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
}
_MAPS: Final = ("metadata.annotations", "metadata.labels")

_AMOUNTS: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGEPAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS: Final = ("1m", "1")
_BYTE_DIVISORS: Final = (
    "1",
    *(f"1{unit}" for unit in "kMGTPE"),
    *(f"1{unit}i" for unit in "KMGTPE"),
)


def validate_field_ref(ref: ObjectFieldSelector, allowed: Sequence[str]) -> Sequence[FieldError]:
    """Everything wrong with a reference to a field of the pod, only these being allowed whole."""
    if ref.apiVersion == "v1" and ref.fieldPath in allowed:
        return ()
    return tuple(_field_ref_errors(ref, allowed))


def _field_ref_errors(ref: ObjectFieldSelector, allowed: Sequence[str]) -> Iterator[FieldError]:
    if not ref.apiVersion:
        yield FieldError.required("apiVersion")
        return
    if not ref.fieldPath:
        yield FieldError.required("fieldPath")
        return
    # Clients from before v1 wrote spec.host for the node.
    path = "spec.nodeName" if ref.fieldPath == "spec.host" else ref.fieldPath
    whole, key = split_subscript(path)
    if why := _unconvertible(ref.apiVersion, path, whole, key):
        yield FieldError.invalid("fieldPath", ref.fieldPath, f"error converting fieldPath: {why}")
    elif key is not None:
        lowered = key.lower() if whole == "metadata.annotations" else key
        yield from rules.problems("", lowered, names.qualified_name(lowered))
    elif path not in allowed:
        yield FieldError.not_supported("fieldPath", path, allowed)


def split_subscript(path: str) -> tuple[str, str | None]:
    """`metadata.labels['app']` as the map and its key; no key if there is no subscript."""
    if path.endswith("']"):
        whole, bracket, key = path[:-2].partition("['")
        if whole and bracket:
            return whole, key
    return path, None


def _unconvertible(version: str, path: str, whole: str, key: str | None) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if key is not None:
        return "" if whole in _MAPS else f"field label does not support subscript: {path}"
    return "" if path in _KNOWN_FIELDS else f"field label not supported: {path}"


def validate_resource_ref(ref: ResourceFieldSelector, *, in_volume: bool) -> Iterator[FieldError]:
    """Everything wrong with a reference to a request or limit; a volume must name the container."""
    if in_volume and not ref.containerName:
        yield FieldError.required("containerName")
    elif not ref.resource:
        yield FieldError.required("resource")
    elif ref.resource not in _AMOUNTS and not ref.resource.startswith(_HUGEPAGES):
        yield FieldError.not_supported("resource", ref.resource, _AMOUNTS)
    if ref.divisor:
        yield from _divisor(ref.resource, ref.divisor)


def _divisor(resource: str, divisor: Quantity) -> Iterator[FieldError]:
    _, _, name = resource.partition(".")
    if name == "cpu":
        if str(divisor) not in _CPU_DIVISORS:
            why = "only divisor's values 1m and 1 are supported with the cpu resource"
            yield FieldError.invalid("divisor", resource, why)
        return
    what = "hugepages" if resource.startswith(_HUGEPAGES) else _BYTES.get(name, "")
    if what and str(divisor) not in _BYTE_DIVISORS:
        values = ", ".join(_BYTE_DIVISORS)
        why = f"only divisor's values {values} are supported with the {what} resource"
        yield FieldError.invalid("divisor", resource, why)


_BYTES: Final = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}


def validate_key_ref(ref: ConfigMapKeySelector | SecretKeySelector) -> Iterator[FieldError]:
    """Everything wrong with a reference to a key of a config map or secret."""
    yield from rules.problems("name", ref.name, names.dns_subdomain(ref.name))
    if not ref.key:
        yield FieldError.required("key")
    else:
        yield from rules.problems("key", ref.key, names.config_key(ref.key))


def validate_file_ref(ref: FileKeySelector) -> Iterator[FieldError]:
    """Everything wrong with a reference to a variable in a file."""
    if not ref.key:
        yield FieldError.required("key")
    else:
        yield from rules.problems("key", ref.key, names.env_var_name(ref.key))
    if not ref.volumeName:
        yield FieldError.required("volumeName")
    else:
        yield from rules.problems("volumeName", ref.volumeName, names.dns_label(ref.volumeName))
    if not ref.path:
        yield FieldError.required("path")
    else:
        yield from path_rules.no_backsteps("path", ref.path)


@lru_cache(maxsize=4096)
def is_variable_name(name: str) -> bool:
    """The same few names come again and again."""
    return not names.env_var_name(name)
