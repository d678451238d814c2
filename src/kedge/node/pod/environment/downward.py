"""The downward API: one resolver for environment variables and volume files."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.container import Container, EnvVarSource
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.references import ResourceFieldSelector
from kedge.api.core_v1.volume.projection import DownwardAPIVolumeFile
from kedge.machinery import fieldpath
from kedge.machinery.quantity import Quantity

DEFAULTED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources whose limit defaults to the allocatable amount of the node."""
SHARES_PER_CPU: Final = 1024
"""CPU shares of one processor (cpu.shares of cgroup v1)."""
TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""The node labels that upstream exposes to pods."""
_ZERO: Final = Quantity.from_value(0)
_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


class UnresolvableField(Exception):
    """The pod has no such field; the text is for its events."""


class DownwardContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a pod's fields are resolved from, besides its own object."""

    pod_ips: Sequence[str] = ()
    host_ips: Sequence[str] = ()
    allocatable: Mapping[str, Quantity] = {}
    """The node's allocatable resources."""
    node_labels: Mapping[str, str] = {}
    exposed: Sequence[str] = ()
    """Keys, or patterns of keys, of the node labels that pods may read besides zone and region."""


def downward_context(
    node: Node, exposed: Sequence[str], pod_ips: Sequence[str] = ()
) -> DownwardContext:
    """Return the context of pods on a node."""
    addresses = node.status.addresses
    return DownwardContext(
        pod_ips=pod_ips,
        host_ips=[each.address for each in addresses if each.type == "InternalIP"],
        allocatable=node.status.allocatable,
        node_labels=node.metadata.labels,
        exposed=exposed,
    )


def variable(
    pod: Pod, own: Container, source: EnvVarSource, context: DownwardContext
) -> str | None:
    """Return the value of an environment variable; None if its source is not the downward API."""
    if source.fieldRef is not None:
        return field(pod, source.fieldRef.fieldPath, context)
    if source.resourceFieldRef is not None:
        return resource_of_variable(pod, own, source.resourceFieldRef, context)
    if source.containerFieldRef is not None:
        return container_field(pod, own, source.containerFieldRef.fieldPath, context)
    return None


def file(pod: Pod, item: DownwardAPIVolumeFile, context: DownwardContext) -> str | None:
    """Return the content of a file in a volume; None if the item names no source."""
    if item.fieldRef is not None:
        return field(pod, item.fieldRef.fieldPath, context)
    if item.resourceFieldRef is not None:
        return resource_of_file(pod, item.resourceFieldRef, context)
    if item.containerFieldRef is not None:
        container = _named(pod, item.path.partition("/")[0])
        return container_field(pod, container, item.containerFieldRef.fieldPath, context)
    return None


def field(pod: Pod, path: str, context: DownwardContext) -> str:
    """Return the value of a field path or a full selector as text. Raises UnresolvableField."""
    try:
        parsed = fieldpath.parse(path)
    except fieldpath.MalformedFieldPath as error:
        raise UnresolvableField(f"unsupported fieldPath: {path}: {error}") from error
    match parsed:
        case fieldpath.ContainerResourcePath():
            container = _among(getattr(pod.spec, parsed.among), parsed.container)
            return _in_cgroup_units(pod, container, parsed, context)
        case fieldpath.OwnerPath():
            return _of_owner(pod, parsed.attribute)
        case fieldpath.FieldPath(name="node.metadata.labels"):
            return _of_node(parsed, context)
    return _plain_field(pod, parsed, context)


def container_field(pod: Pod, container: Container, path: str, context: DownwardContext) -> str:
    """Return the value of a partial selector, which refers to the container."""
    try:
        parsed = fieldpath.parse_partial(path)
    except fieldpath.MalformedFieldPath as error:
        raise UnresolvableField(f"unsupported fieldPath: {path}: {error}") from error
    return _in_cgroup_units(pod, container, parsed, context)


def _plain_field(pod: Pod, path: fieldpath.FieldPath, context: DownwardContext) -> str:
    meta, key = pod.metadata, path.key
    match path.name:
        case "metadata.annotations":
            return formatted(meta.annotations) if key is None else meta.annotations.get(key, "")
        case "metadata.labels":
            return formatted(meta.labels) if key is None else meta.labels.get(key, "")
        case "metadata.name":
            return meta.name
        case "metadata.namespace":
            return meta.namespace
        case "metadata.uid":
            return meta.uid
        case "spec.nodeName" | "spec.host":
            return pod.spec.nodeName
        case "spec.serviceAccountName":
            return pod.spec.serviceAccountName
        case "status.hostIP":
            return next(iter(context.host_ips), "")
        case "status.hostIPs":
            return ",".join(context.host_ips)
        case "status.podIP":
            return next(iter(context.pod_ips), "")
        case "status.podIPs":
            return ",".join(context.pod_ips)
    raise UnresolvableField(f"unsupported fieldPath: {path}")


def _of_owner(pod: Pod, attribute: str) -> str:
    for owner in pod.metadata.ownerReferences:
        if owner.controller:
            value: str = getattr(owner, attribute)
            return value
    return ""


def _of_node(path: fieldpath.FieldPath, context: DownwardContext) -> str:
    if path.key is None:
        labels = context.node_labels.items()
        return formatted({key: value for key, value in labels if _exposed(key, context)})
    if not _exposed(path.key, context):
        raise UnresolvableField(
            f'label "{path.key}" of the node is not exposed to pods;'
            f" --expose-node-labels={path.key} would do that"
        )
    return context.node_labels.get(path.key, "")


def _exposed(key: str, context: DownwardContext) -> bool:
    return key in TOPOLOGY or any(fnmatchcase(key, pattern) for pattern in context.exposed)


def formatted(pairs: Mapping[str, str]) -> str:
    """Return a map as text: one line for each key, sorted, with values quoted as in Go."""
    ordered = sorted(pairs.items(), key=lambda pair: pair[0].encode())
    return "\n".join(f"{key}={quoted(value)}" for key, value in ordered)


def quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    # Go prints letters, marks, numbers, punctuation and symbols, and of the spaces only U+0020.
    if character == " " or unicodedata.category(character)[0] in "LMNPS":
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def resource_of_variable(
    pod: Pod, own: Container, selector: ResourceFieldSelector, context: DownwardContext
) -> str:
    """Return a request or limit for a variable, of the named container or else of its own."""
    bound, _, name = selector.resource.partition(".")
    # The container itself may be an ephemeral one, which no selector can name.
    container = _named(pod, selector.containerName) if selector.containerName else own
    if selector.containerName and container in pod.spec.initContainers:
        # As upstream: init containers that another container names have no defaults.
        return _divided(_own_amount(container, bound, name), selector.divisor)
    return _divided(_effective(pod, container, bound, name, context), selector.divisor)


def resource_of_file(pod: Pod, selector: ResourceFieldSelector, context: DownwardContext) -> str:
    """Return a request or limit for a file in a volume; pod-level limits do not apply, as
    upstream."""
    bound, _, name = selector.resource.partition(".")
    amount = _own_amount(_named(pod, selector.containerName), bound, name)
    return _divided(amount or _node_limit(bound, name, context), selector.divisor)


def _in_cgroup_units(
    pod: Pod,
    container: Container,
    selector: fieldpath.ContainerResourcePath,
    context: DownwardContext,
) -> str:
    """Return the amount in the units of cgroups: shares for cpu, bytes for memory and storage."""
    amount = _effective(pod, container, selector.bound, selector.resource, context)
    if selector.resource == "cpu":
        return str(amount.milli() * SHARES_PER_CPU // 1000)
    return str(amount.value())


def _named(pod: Pod, name: str) -> Container:
    return _among((*pod.spec.containers, *pod.spec.initContainers), name)


def _among(containers: Iterable[Container], name: str) -> Container:
    for container in containers:
        if container.name == name:
            return container
    raise UnresolvableField(f"container {name} not found")


def _effective(
    pod: Pod, container: Container, bound: str, name: str, context: DownwardContext
) -> Quantity:
    """Return the container's own amount, else the pod's limit, else that of the node."""
    return (
        _own_amount(container, bound, name)
        or _pod_limit(pod, bound, name)
        or _node_limit(bound, name, context)
    )


def _own_amount(container: Container, bound: str, name: str) -> Quantity:
    amounts: Mapping[str, Quantity] = getattr(container.resources, bound)
    if name in amounts:
        return amounts[name]
    return amounts.get("ephemeral-storage", _ZERO) if name == "storage" else _ZERO


def _pod_limit(pod: Pod, bound: str, name: str) -> Quantity:
    if bound == "limits" and name in ("cpu", "memory") and pod.spec.resources is not None:
        return pod.spec.resources.limits.get(name, _ZERO)
    return _ZERO


def _node_limit(bound: str, name: str, context: DownwardContext) -> Quantity:
    if bound != "limits":
        return _ZERO
    known = "ephemeral-storage" if name == "storage" else name
    return context.allocatable.get(known, _ZERO) if known in DEFAULTED else _ZERO


def _divided(amount: Quantity, divisor: Quantity | None) -> str:
    unit = divisor.nanos if divisor else Quantity.from_value(1).nanos
    return str(-(-amount.nanos // unit))
