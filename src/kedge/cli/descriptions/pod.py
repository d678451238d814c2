"""Pod: what it was asked to be, what it is, and what happened to it, in kubectl's order."""

from collections.abc import Iterator, Sequence

from kedge.cli.descriptions import parts
from kedge.cli.descriptions.any_object import outline
from kedge.cli.descriptions.container import bounds, containers
from kedge.cli.descriptions.parts import NONE, Fields, RelatedObjects, fact

_ENDED = ("Failed", "Succeeded")


def describe(pod: Fields, about: RelatedObjects) -> str:
    return parts.text(_lines(pod, about))


def _lines(pod: Fields, about: RelatedObjects) -> Iterator[str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    yield from _identity(pod["metadata"], spec, status)
    yield from _state(pod["metadata"], status, about)
    if (resources := spec.get("resources")) is not None:
        yield "Resources:"
        yield from parts.indented(bounds(resources))
    if spec.get("initContainers"):
        statuses = status.get("initContainerStatuses")
        yield from containers("Init Containers", spec["initContainers"], statuses, pod)
    yield from containers(
        "Containers", spec.get("containers"), status.get("containerStatuses"), pod
    )
    if spec.get("ephemeralContainers"):
        statuses = status.get("ephemeralContainerStatuses")
        yield from containers("Ephemeral Containers", spec["ephemeralContainers"], statuses, pod)
    yield from _gates(spec.get("readinessGates") or (), status.get("conditions") or ())
    yield from _conditions(status.get("conditions") or ())
    yield from _volumes(spec.get("volumes") or (), about)
    yield fact("QoS Class", status.get("qosClass", ""))
    yield from parts.labels("Node-Selectors", spec.get("nodeSelector"))
    ordered = sorted(spec.get("tolerations") or (), key=lambda each: str(each.get("key", "")))
    yield from parts.several("Tolerations", map(toleration, ordered))
    yield from parts.events(about)


def _identity(metadata: Fields, spec: Fields, status: Fields) -> Iterator[str]:
    yield fact("Name", metadata["name"])
    yield fact("Namespace", metadata["namespace"])
    if "priority" in spec:
        yield fact("Priority", spec["priority"])
    for label, field in (
        ("Priority Class Name", "priorityClassName"),
        ("Runtime Class Name", "runtimeClassName"),
        ("Service Account", "serviceAccountName"),
    ):
        if spec.get(field):
            yield fact(label, spec[field])
    node = spec.get("nodeName")
    yield fact("Node", f"{node}/{status.get('hostIP', '')}" if node else NONE)
    if started := status.get("startTime"):
        yield fact("Start Time", parts.moment(started))
    yield from parts.labels("Labels", metadata.get("labels"))
    yield from parts.annotations(metadata.get("annotations"))


def _state(metadata: Fields, status: Fields, about: RelatedObjects) -> Iterator[str]:
    phase = status.get("phase", "")
    doomed = metadata.get("deletionTimestamp")
    if doomed and phase not in _ENDED:
        yield fact("Status", f"Terminating (lasts {parts.age(doomed, about.now)})")
        grace = metadata.get("deletionGracePeriodSeconds", 0)
        yield fact("Termination Grace Period", f"{grace}s")
    else:
        yield fact("Status", phase)
    for label, field in (("Reason", "reason"), ("Message", "message")):
        if status.get(field):
            yield fact(label, status[field])
    yield fact("IP", status.get("podIP", ""))
    if addresses := status.get("podIPs"):
        yield "IPs:"
        yield from (f"  IP:\t{each.get('ip', '')}" for each in addresses)
    else:
        yield fact("IPs", NONE)
    if owner := parts.controller(metadata):
        yield fact("Controlled By", owner)
    if nominated := status.get("nominatedNodeName"):
        yield fact("NominatedNodeName", nominated)


def _gates(gates: Sequence[Fields], conditions: Sequence[Fields]) -> Iterator[str]:
    known = {each["type"]: each["status"] for each in conditions}
    if gates:
        yield "Readiness Gates:"
        yield "  Type\tStatus"
    for gate in gates:
        yield f"  {gate['conditionType']} \t{known.get(gate['conditionType'], NONE)} "


def _conditions(conditions: Sequence[Fields]) -> Iterator[str]:
    if conditions:
        yield "Conditions:"
        yield "  Type\tStatus"
    for condition in conditions:
        yield f"  {condition['type']} \t{condition['status']} "


def _volumes(volumes: Sequence[Fields], about: RelatedObjects) -> Iterator[str]:
    if not volumes:
        yield fact("Volumes", NONE)
        return
    yield "Volumes:"
    for volume in volumes:
        yield f"  {volume['name']}:"
        for source in sorted(volume.keys() - {"name"}):
            yield f"    Type:\t{source[:1].upper()}{source[1:]}"
            yield from parts.indented(outline(_source(volume[source])), "    ")
        yield from parts.indented(about.claims.get(volume["name"], ()), "    ")


def _source(fields: Fields) -> Fields:
    """Return the fields of a volume's source as shown, with modes in octal."""
    shown = {key: value for key, value in fields.items() if key != "type" or value}
    if "type" in shown:
        shown["hostPathType"] = shown.pop("type")
    if "defaultMode" in shown:
        shown["defaultMode"] = f"{shown['defaultMode']:04o}"
    return shown


def toleration(values: Fields) -> str:
    """`key=value:Effect op=Exists for 300s`."""
    said = values.get("key", "")
    if value := values.get("value"):
        said += f"={value}"
    if effect := values.get("effect"):
        said += f":{effect}"
    if values.get("operator") == "Exists" and not values.get("value"):
        said = f"{said} op=Exists".strip()
    if "tolerationSeconds" in values:
        said += f" for {values['tolerationSeconds']}s"
    return str(said)
