"""Rules for references: to keys of other objects, and to fields of the pod itself."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from kedge.api import rules
from kedge.api.core_v1 import path_rules
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.references import (
    ConfigMapKeySelector,
    FileKeySelector,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretKeySelector,
)
from kedge.api.core_v1.resource_names import STORAGE, container_name
from kedge.machinery import fieldpath, names
from kedge.machinery.errors import ErrorScope, FieldError
from kedge.machinery.quantity import Quantity
from kedge.machinery.short_cache import short_cache

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
NODE_LABELS: Final = "node.metadata.labels"
"""Kedge's own: labels of the node that the pod runs on."""
_SELECTABLE: Final = ("cpu", "ephemeral-storage", "memory", "storage")

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
    """Everything wrong with a reference to a field of the pod, only these being allowed whole.

    Whether the containers that selectors name are there is for `named_container` to say.
    """
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
    try:
        parsed = fieldpath.parse(path)
    except fieldpath.MalformedFieldPath as error:
        yield from _selector(ref, FieldError.invalid("fieldPath", ref.fieldPath, str(error)))
        return
    if isinstance(parsed, fieldpath.ContainerResourcePath):
        yield from _selector(ref, *_resource(parsed.resource))
    elif isinstance(parsed, fieldpath.OwnerPath):
        yield from _selector(ref)
    elif parsed.name == NODE_LABELS:
        yield from _selector(ref, *_node_labels(parsed, whole=FILE_FIELDS is allowed))
    else:
        yield from _field(ref, parsed, allowed)


def _field(
    ref: ObjectFieldSelector, field: fieldpath.FieldPath, allowed: Sequence[str]
) -> Iterator[FieldError]:
    if why := _unconvertible(ref.apiVersion, field):
        yield FieldError.invalid("fieldPath", ref.fieldPath, f"error converting fieldPath: {why}")
    elif field.written_key is not None:
        key = field.written_key
        lowered = key.lower() if field.name == "metadata.annotations" else key
        problems = rules.problems("", lowered, names.qualified_name(lowered))
        if field.escapes and names.needs_escapes(field.key or ""):
            problems = (problem.only(ErrorScope.EXTENSION) for problem in problems)
        yield from problems
    elif field.name not in allowed:
        yield FieldError.not_supported("fieldPath", field.name, allowed)


def _selector(ref: ObjectFieldSelector, *problems: FieldError) -> Iterator[FieldError]:
    """Yield Kubernetes' error for a path that only kedge has, and kedge's own errors."""
    field = fieldpath.FieldPath.parsed(ref.fieldPath)
    why = f"error converting fieldPath: {_unconvertible(ref.apiVersion, field)}"
    refusal = FieldError.invalid("fieldPath", ref.fieldPath, why)
    if ref.apiVersion != "v1":
        yield refusal
        return
    yield refusal.only(ErrorScope.EXTENSION)
    for problem in problems:
        yield problem.only(ErrorScope.KEDGE)


def _node_labels(field: fieldpath.FieldPath, *, whole: bool) -> Iterator[FieldError]:
    if field.written_key is not None:
        found = names.qualified_name(field.written_key)
        yield from rules.problems("", field.written_key, found)
    elif not whole:
        why = f"a variable shows one label: {NODE_LABELS}['KEY']"
        yield FieldError.invalid("fieldPath", field.name, why)


def _resource(name: str) -> Iterator[FieldError]:
    if name != STORAGE and container_name(name):
        yield FieldError.not_supported("fieldPath", name, _SELECTABLE)


def validate_container_field_ref(ref: ObjectFieldSelector) -> Iterator[FieldError]:
    """Everything wrong with a reference to a field of a container, which is kedge's own."""
    if not ref.fieldPath:
        yield FieldError.required("fieldPath")
        return
    if ref.apiVersion != "v1":
        why = f"error converting fieldPath: unsupported pod version: {ref.apiVersion}"
        yield FieldError.invalid("fieldPath", ref.fieldPath, why)
        return
    try:
        yield from _resource(fieldpath.parse_partial(ref.fieldPath).resource)
    except fieldpath.MalformedFieldPath as error:
        yield FieldError.invalid("fieldPath", ref.fieldPath, str(error))


def container_names(containers: Sequence[Container]) -> frozenset[str]:
    """The names of a pod's containers, collected once for all the references of that pod."""
    return _collected_names(_Identity(containers))


class _Identity:
    """A list that compares by identity, not by content."""

    __slots__ = ("value",)

    def __init__(self, value: Sequence[Container]) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value


@lru_cache(maxsize=8)
def _collected_names(containers: _Identity) -> frozenset[str]:
    return frozenset(container.name for container in containers.value)


def named_container(ref: ObjectFieldSelector, spec: PodSpec) -> tuple[str, Sequence[FieldError]]:
    """The container that a selector names, if it is one and names one; what is wrong with that."""
    # Nearly all paths are Kubernetes' own, and of those none begins like this.
    if "[?" not in ref.fieldPath.replace(" ", ""):
        return "", ()
    try:
        parsed = fieldpath.parse(ref.fieldPath)
    except fieldpath.MalformedFieldPath:
        return "", ()
    if not isinstance(parsed, fieldpath.ContainerResourcePath):
        return "", ()
    if parsed.container in container_names(getattr(spec, parsed.among)):
        return parsed.container, ()
    why = f'container "{parsed.container}" not found in spec.{parsed.among}'
    error = FieldError.invalid("fieldPath", ref.fieldPath, why)
    return "", (error.only(ErrorScope.KEDGE),)


def _unconvertible(version: str, field: fieldpath.FieldPath) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if field.written_key is not None:
        known = field.name in _MAPS
        return "" if known else f"field label does not support subscript: {field}"
    return "" if field.name in _KNOWN_FIELDS else f"field label not supported: {field}"


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


@short_cache(4096)
def is_variable_name(name: str) -> bool:
    """The same few names come again and again."""
    return not names.env_var_name(name)
