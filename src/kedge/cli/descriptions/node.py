"""Node: what it is, how it fares, and how much of it is spoken for, in kubectl's order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kedge.api.core_v1.pod.pod import RESOURCE as POD
from kedge.api.core_v1.pod.resources import pod_level, pod_requests, total
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.cli.descriptions import parts
from kedge.cli.descriptions.parts import NONE, Fields, RelatedObjects, fact
from kedge.machinery.quantity import Quantity

Amounts = Mapping[str, Quantity]

_ROLE: Final = "node-role.kubernetes.io/"
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_NOTHING: Final = Quantity.parse("0")
_SYSTEM: Final = {
    "Machine ID": "machineID",
    "System UUID": "systemUUID",
    "Boot ID": "bootID",
    "Kernel Version": "kernelVersion",
    "OS Image": "osImage",
    "Operating System": "operatingSystem",
    "Architecture": "architecture",
    "Container Runtime Version": "containerRuntimeVersion",
    "Kubelet Version": "kubeletVersion",
}
_ADDRESSING: Final = {"PodCIDR": "podCIDR", "ProviderID": "providerID"}


def describe(node: Fields, about: RelatedObjects) -> str:
    return parts.text(_lines(node, about))


def _lines(node: Fields, about: RelatedObjects) -> Iterator[str]:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    yield fact("Name", metadata["name"])
    yield fact("Roles", ",".join(roles(metadata.get("labels") or {})) or NONE)
    yield from parts.labels("Labels", metadata.get("labels"))
    yield from parts.annotations(metadata.get("annotations"))
    yield fact("CreationTimestamp", parts.moment(metadata.get("creationTimestamp")))
    yield from parts.several("Taints", sorted(map(taint, spec.get("taints") or ())))
    yield fact("Unschedulable", bool(spec.get("unschedulable")))
    yield from _lease(about.lease)
    yield from _conditions(status.get("conditions") or ())
    yield "Addresses:"
    yield from (f"  {each['type']}:\t{each['address']}" for each in status.get("addresses") or ())
    for label in ("Capacity", "Allocatable"):
        if amounts := status.get(label.lower()):
            yield f"{label}:"
            yield from parts.indented(parts.amounts(amounts))
    yield "System Info:"
    info = status.get("nodeInfo") or {}
    yield from (f"  {label}:\t{info.get(field, '')}" for label, field in _SYSTEM.items())
    yield from (fact(label, spec[field]) for label, field in _ADDRESSING.items() if spec.get(field))
    yield from _pods(status, about)
    yield from parts.events(about)


def roles(labels: Fields) -> list[str]:
    """Return the roles in the labels of a node."""
    named = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    named |= {labels[key] for key in labels if key == "kubernetes.io/role"}
    return sorted(role for role in named if role)


def taint(values: Fields) -> str:
    """`key=value:Effect`."""
    value = f"={values['value']}" if values.get("value") else ""
    return f"{values['key']}{value}:{values.get('effect', '')}"


def _lease(lease: Fields | None) -> Iterator[str]:
    if lease is None:
        yield fact("Lease", NONE)
        return
    spec = lease.get("spec") or {}
    yield "Lease:"
    yield f"  HolderIdentity:\t{spec.get('holderIdentity') or '<unset>'}"
    yield f"  AcquireTime:\t{parts.moment(spec.get('acquireTime'))}"
    yield f"  RenewTime:\t{parts.moment(spec.get('renewTime'))}"


def _conditions(conditions: Sequence[Fields]) -> Iterator[str]:
    if not conditions:
        return
    heads = ("Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message")
    yield "Conditions:"
    yield "  " + "\t".join(heads)
    yield "  " + "\t".join("-" * len(head) for head in heads)
    for each in conditions:
        times = [parts.moment(each.get(key)) for key in ("lastHeartbeatTime", "lastTransitionTime")]
        cells = [each["type"], each["status"], *times, each.get("reason", "")]
        yield "  " + " \t".join([*cells, parts.shown(each.get("message", ""))])


def _pods(status: Fields, about: RelatedObjects) -> Iterator[str]:
    if about.pods is None:
        yield "Pods:\tnot authorized"
        return
    room = _quantities(status.get("allocatable") or status.get("capacity") or {})
    asked = [needs(pod) for pod in about.pods]
    yield f"Non-terminated Pods:\t({len(asked)} in total)"
    heads = ["Namespace", "Name", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits"]
    yield _row([*heads, "Age"])
    yield _row(["-" * len(head) for head in [*heads, "Age"]])
    for pod, (requests, limits) in zip(about.pods, asked, strict=True):
        metadata = pod["metadata"]
        shares = [
            share(amounts.get(name, _NOTHING), room.get(name))
            for name in ("cpu", "memory")
            for amounts in (requests, limits)
        ]
        born = parts.age(metadata.get("creationTimestamp"), about.now)
        yield _row([metadata["namespace"], metadata["name"], *shares, born])
    yield from _allocated(room, [r for r, _ in asked], [limits for _, limits in asked])


def _row(cells: list[str]) -> str:
    """The name is followed by an empty cell, which sets it off."""
    namespace, name, *rest = cells
    return "  " + "\t".join([namespace, name, "", *rest])


def _allocated(room: Amounts, requests: list[Amounts], limits: list[Amounts]) -> Iterator[str]:
    yield "Allocated resources:"
    yield "  (Total limits may be over 100 percent, i.e., overcommitted.)"
    yield "  Resource\tRequests\tLimits"
    yield "  --------\t--------\t------"
    for name in [*_STANDARD, *sorted(room.keys() - {*_STANDARD, "pods"})]:
        sums = [_sum(amounts, name) for amounts in (requests, limits)]
        # How much of a device is taken says its number; a share of it says nothing more.
        divisible = name in _STANDARD or name.startswith("hugepages-")
        cells = [share(each, room.get(name)) if divisible else str(each) for each in sums]
        yield "  " + "\t".join([name, *cells])


def _sum(amounts: list[Amounts], name: str) -> Quantity:
    whole = _NOTHING
    for each in amounts:
        whole = whole + each.get(name, _NOTHING)
    return whole


def share(amount: Quantity, room: Quantity | None) -> str:
    """`250m (12%)`."""
    percent = amount.nanos * 100 // room.nanos if room else 0
    return f"{amount} ({percent}%)"


def needs(pod: Fields) -> tuple[Amounts, Amounts]:
    """Return the total requests and limits of the pod."""
    spec = POD.from_document(dict(pod)).spec
    return pod_requests(spec), _limits(spec)


def _limits(spec: PodSpec) -> Amounts:
    limits = total(spec, "limits")
    own = spec.resources.limits if spec.resources is not None else {}
    return limits | {name: amount for name, amount in own.items() if pod_level(name)}


def _quantities(amounts: Fields) -> dict[str, Quantity]:
    return {name: Quantity.parse(str(amount)) for name, amount in amounts.items()}
