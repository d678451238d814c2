"""What a pod can be told of itself: one resolver behind variables and files."""

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
"""Resources of which a node has so much that a container without a limit is limited by that."""
SHARES_PER_CPU: Final = 1024
"""As the kernel counts one whole processor."""
TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""The labels of nodes that upstream tells pods of."""
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


class Unresolvable(Exception):
    """The pod has no such thing; the text is for its events."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a pod beyond its own object."""

    pod_ips: Sequence[str] = ()
    host_ips: Sequence[str] = ()
    allocatable: Mapping[str, Quantity] = {}
    """Of the node."""
    node_labels: Mapping[str, str] = {}
    exposed: Sequence[str] = ()
    """Which of the node's labels pods may know besides its place: keys, or patterns of keys."""


def surroundings(node: Node, exposed: Sequence[str], pod_ips: Sequence[str] = ()) -> Surroundings:
    """What pods on a node find around them."""
    addresses = node.status.addresses
    return Surroundings(
        pod_ips=pod_ips,
        host_ips=[each.address for each in addresses if each.type == "InternalIP"],
        allocatable=node.status.allocatable,
        node_labels=node.metadata.labels,
        exposed=exposed,
    )


def variable(pod: Pod, own: Container, source: EnvVarSource, around: Surroundings) -> str | None:
    """The value of a variable of a container; None if its source is not the pod itself."""
    if source.fieldRef is not None:
        return field(pod, source.fieldRef.fieldPath, around)
    if source.resourceFieldRef is not None:
        return resource_of_variable(pod, own, source.resourceFieldRef, around)
    if source.containerFieldRef is not None:
        return container_field(pod, own, source.containerFieldRef.fieldPath, around)
    return None


def file(pod: Pod, item: DownwardAPIVolumeFile, around: Surroundings) -> str | None:
    """The content of a file in a volume; None if it is said to come from nowhere."""
    if item.fieldRef is not None:
        return field(pod, item.fieldRef.fieldPath, around)
    if item.resourceFieldRef is not None:
        return resource_of_file(pod, item.resourceFieldRef, around)
    if item.containerFieldRef is not None:
        container = _named(pod, item.path.partition("/")[0])
        return container_field(pod, container, item.containerFieldRef.fieldPath, around)
    return None


def field(pod: Pod, path: str, around: Surroundings) -> str:
    """The value behind a field path or a full selector, as text."""
    try:
        parsed = fieldpath.parse(path)
    except fieldpath.MalformedFieldPath as error:
        raise Unresolvable(f"unsupported fieldPath: {path}: {error}") from error
    match parsed:
        case fieldpath.ContainerResourcePath():
            container = _among(getattr(pod.spec, parsed.among), parsed.container)
            return _as_cgroups_have_it(pod, container, parsed, around)
        case fieldpath.OwnerPath():
            return _of_owner(pod, parsed.attribute)
        case fieldpath.FieldPath(name="node.metadata.labels"):
            return _of_node(parsed, around)
    return _plain_field(pod, parsed, around)


def container_field(pod: Pod, container: Container, path: str, around: Surroundings) -> str:
    """The value behind a partial selector, which is about the container."""
    try:
        parsed = fieldpath.parse_partial(path)
    except fieldpath.MalformedFieldPath as error:
        raise Unresolvable(f"unsupported fieldPath: {path}: {error}") from error
    return _as_cgroups_have_it(pod, container, parsed, around)


def _plain_field(pod: Pod, path: fieldpath.FieldPath, around: Surroundings) -> str:
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
            return next(iter(around.host_ips), "")
        case "status.hostIPs":
            return ",".join(around.host_ips)
        case "status.podIP":
            return next(iter(around.pod_ips), "")
        case "status.podIPs":
            return ",".join(around.pod_ips)
    raise Unresolvable(f"unsupported fieldPath: {path}")


def _of_owner(pod: Pod, attribute: str) -> str:
    for owner in pod.metadata.ownerReferences:
        if owner.controller:
            value: str = getattr(owner, attribute)
            return value
    return ""


def _of_node(path: fieldpath.FieldPath, around: Surroundings) -> str:
    if path.key is None:
        labels = around.node_labels.items()
        return formatted({key: value for key, value in labels if _exposed(key, around)})
    if not _exposed(path.key, around):
        raise Unresolvable(
            f'label "{path.key}" of the node is not exposed to pods;'
            f" --expose-node-labels={path.key} would do that"
        )
    return around.node_labels.get(path.key, "")


def _exposed(key: str, around: Surroundings) -> bool:
    return key in TOPOLOGY or any(fnmatchcase(key, pattern) for pattern in around.exposed)


def formatted(pairs: Mapping[str, str]) -> str:
    """A whole map: a line for each key, sorted, values quoted as Go quotes them."""
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
    # Go prints letters, marks, numbers, punctuation, symbols, and of all spaces the plain one.
    if character == " " or unicodedata.category(character)[0] in "LMNPS":
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def resource_of_variable(
    pod: Pod, own: Container, selector: ResourceFieldSelector, around: Surroundings
) -> str:
    """A request or limit for a variable: of the container named, else of the one it is for."""
    bound, _, name = selector.resource.partition(".")
    # The container itself may be one that nobody can name, there only for looking into the pod.
    container = _named(pod, selector.containerName) if selector.containerName else own
    if selector.containerName and container in pod.spec.initContainers:
        # Upstream has no defaults for init containers that are named from elsewhere.
        return _divided(_given(container, bound, name), selector.divisor)
    return _divided(_effective(pod, container, bound, name, around), selector.divisor)


def resource_of_file(pod: Pod, selector: ResourceFieldSelector, around: Surroundings) -> str:
    """A request or limit for a file in a volume, of which the pod's own limits are no part."""
    bound, _, name = selector.resource.partition(".")
    amount = _given(_named(pod, selector.containerName), bound, name)
    return _divided(amount or _most(bound, name, around), selector.divisor)


def _as_cgroups_have_it(
    pod: Pod, container: Container, selector: fieldpath.ContainerResourcePath, around: Surroundings
) -> str:
    """Shares for cpu, bytes for memory and storage, else whole units."""
    amount = _effective(pod, container, selector.bound, selector.resource, around)
    if selector.resource == "cpu":
        return str(amount.milli() * SHARES_PER_CPU // 1000)
    return str(amount.value())


def _named(pod: Pod, name: str) -> Container:
    return _among((*pod.spec.containers, *pod.spec.initContainers), name)


def _among(containers: Iterable[Container], name: str) -> Container:
    for container in containers:
        if container.name == name:
            return container
    raise Unresolvable(f"container {name} not found")


def _effective(
    pod: Pod, container: Container, bound: str, name: str, around: Surroundings
) -> Quantity:
    """What the container asks for, else what it is limited to all the same."""
    return (
        _given(container, bound, name) or _pod_limit(pod, bound, name) or _most(bound, name, around)
    )


def _given(container: Container, bound: str, name: str) -> Quantity:
    amounts: Mapping[str, Quantity] = getattr(container.resources, bound)
    if name in amounts:
        return amounts[name]
    return amounts.get("ephemeral-storage", _ZERO) if name == "storage" else _ZERO


def _pod_limit(pod: Pod, bound: str, name: str) -> Quantity:
    if bound == "limits" and name in ("cpu", "memory") and pod.spec.resources is not None:
        return pod.spec.resources.limits.get(name, _ZERO)
    return _ZERO


def _most(bound: str, name: str, around: Surroundings) -> Quantity:
    if bound != "limits":
        return _ZERO
    known = "ephemeral-storage" if name == "storage" else name
    return around.allocatable.get(known, _ZERO) if known in DEFAULTED else _ZERO


def _divided(amount: Quantity, divisor: Quantity | None) -> str:
    unit = divisor.nanos if divisor else Quantity.from_value(1).nanos
    return str(-(-amount.nanos // unit))
