"""What a pod can be told of itself: one resolver behind variables and files."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kedge.api.core_v1.container import Container
from kedge.api.core_v1.pod import Pod
from kedge.api.core_v1.references import ResourceFieldSelector
from kedge.machinery.quantity import Quantity

DEFAULTED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a node has so much that a container without a limit is limited by that."""
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


def field(pod: Pod, path: str, around: Surroundings) -> str:
    """The value behind a field path, as text."""
    name, key = split_subscript(path)
    meta = pod.metadata
    match name:
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


def split_subscript(path: str) -> tuple[str, str | None]:
    """A path such as metadata.labels['app'] as its two parts; None where there is no second."""
    if path.endswith("']") and "['" in path:
        name, _, key = path[:-2].partition("['")
        return name, key
    return path, None


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
    name = selector.containerName or own.name
    container = _named(pod, name)
    if selector.containerName and container in pod.spec.initContainers:
        # Upstream has no defaults for init containers that are named from elsewhere.
        return _divided(_given(container, selector.resource), selector.divisor)
    amount = _given(container, selector.resource) or _pod_limit(pod, selector.resource)
    return _divided(amount or _most(selector.resource, around), selector.divisor)


def resource_of_file(pod: Pod, selector: ResourceFieldSelector, around: Surroundings) -> str:
    """A request or limit for a file in a volume."""
    amount = _given(_named(pod, selector.containerName), selector.resource)
    return _divided(amount or _most(selector.resource, around), selector.divisor)


def _named(pod: Pod, name: str) -> Container:
    for container in (*pod.spec.containers, *pod.spec.initContainers):
        if container.name == name:
            return container
    raise Unresolvable(f"container {name} not found")


def _given(container: Container, resource: str) -> Quantity:
    bound, _, name = resource.partition(".")
    amounts: Mapping[str, Quantity] = getattr(container.resources, bound)
    return amounts.get(name, _ZERO)


def _pod_limit(pod: Pod, resource: str) -> Quantity:
    bound, _, name = resource.partition(".")
    if bound == "limits" and name in ("cpu", "memory") and pod.spec.resources is not None:
        return pod.spec.resources.limits.get(name, _ZERO)
    return _ZERO


def _most(resource: str, around: Surroundings) -> Quantity:
    bound, _, name = resource.partition(".")
    if bound == "limits" and name in DEFAULTED:
        return around.allocatable.get(name, _ZERO)
    return _ZERO


def _divided(amount: Quantity, divisor: Quantity | None) -> str:
    unit = divisor.nanos if divisor else Quantity.from_value(1).nanos
    return str(-(-amount.nanos // unit))
