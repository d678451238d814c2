"""What `kedge recommend` does: gather what the pods of a workload used, and size it by that."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.api.metrics_v1alpha1 import pod
from kedge.api.metrics_v1alpha1.pod import Pod
from kedge.api.metrics_v1alpha1.windows import Metrics
from kedge.cli import outputs
from kedge.cli.connection import Connection
from kedge.cli.failure import Failure
from kedge.cli.targets import Target, kind_of
from kedge.machinery.durations import human_age, parse_time
from kedge.machinery.quantity import Format, Quantity
from kedge.machinery.selectors import labels_from_map, labels_from_object

_HOUR: Final = 3600
_DAY: Final = 86400
_LEAST: Final = {"cpu": 1_000_000, "memory": 1 << 20}
"""The steps in which amounts are proposed: a thousandth of a core (in nanos), a mebibyte."""
_SMALLEST: Final = {"cpu": 10, "memory": 16}
"""The least that is proposed, in steps."""
RESOURCES: Final = ("cpu", "memory")


class Evidence(NamedTuple):
    """What the pods used of one resource in one container."""

    window: str
    seconds: int
    """How much time has been seen."""
    pods: int
    usual: Quantity
    """The greatest of the 95th percentiles."""
    most: Quantity


async def show(connection: Connection, word: str, headroom: int) -> int:
    """Print the patch."""
    (target,) = await connection.targets([word])
    if not target.name:
        raise Failure("name a workload or pod, such as deploy/web")
    namespace = connection.within(target.resource)
    document = await connection.get(target.resource, target.name, namespace)
    measured = await _measured(connection, target, document, namespace)
    if not measured:
        raise Failure(
            f"nothing has been reported yet of the pods of {word}: a pod is measured from ten"
            " seconds after its start on"
        )
    containers = _containers(target, document)
    found = {name: evidence(measured, name) for name in containers}
    if not any(found.values()):
        raise Failure(f"nothing has been reported yet of the containers of {word}")
    print("\n".join(_comments(target, containers, found, headroom)))
    print(outputs.yaml_text(patch(target, namespace, found, headroom)))
    return 0


async def _measured(
    connection: Connection, target: Target, document: Mapping[str, Any], namespace: str
) -> list[Pod]:
    if target.resource.kind == "Pod":
        found = await connection.client.list(
            pod.RESOURCE, namespace, fields=f"metadata.name={target.name}"
        )
        return found.items
    selector = (document.get("spec") or {}).get("selector")
    if not selector or "template" not in document["spec"]:
        raise Failure(f"{kind_of(target.resource)} has no pods of its own: name a workload or pod")
    plain = target.resource.kind == "ReplicationController"
    labels = str(labels_from_map(selector) if plain else labels_from_object(selector))
    return (await connection.client.list(pod.RESOURCE, namespace, labels=labels)).items


def _containers(target: Target, document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The containers by name, as they are declared now."""
    spec = document["spec"]
    inner = spec if target.resource.kind == "Pod" else spec["template"]["spec"]
    return {each["name"]: each.get("resources") or {} for each in inner["containers"]}


def evidence(pods: Sequence[Pod], container: str) -> dict[str, Evidence]:
    """What is known of a container, by resource."""
    seen = [
        each.metrics for pod in pods for each in pod.containers if each.metadata.name == container
    ]
    spans = [_span(windows["1d"]) for windows in seen if "1d" in windows]
    length = "1d" if spans and max(spans) > _HOUR else "1h"
    chosen = [windows[length] for windows in seen if length in windows]
    found = {}
    for resource in RESOURCES:
        usual = [each.ninety_fifth[resource] for each in chosen if resource in each.ninety_fifth]
        most = [each.max[resource] for each in chosen if resource in each.max]
        if usual and most:
            seconds = min(max(spans), _HOUR if length == "1h" else _DAY)
            found[resource] = Evidence(length, seconds, len(usual), max(usual), max(most))
    return found


def _span(window: Metrics) -> int:
    if not window.starttime:
        return _DAY
    return int((parse_time(window.endtime) - parse_time(window.starttime)).total_seconds())


def proposed(resource: str, found: Evidence, headroom: int) -> tuple[Quantity, Quantity]:
    """The request and the limit."""
    request = _rounded(resource, found.usual.nanos)
    limit = _rounded(resource, found.most.nanos * (100 + headroom) // 100)
    return request, max(request, limit)


def _rounded(resource: str, nanos: int) -> Quantity:
    if resource == "cpu":
        steps = max(-(-nanos // _LEAST["cpu"]), _SMALLEST["cpu"])
        return Quantity.from_milli(steps)
    size = -(-nanos // 1_000_000_000)
    steps = max(-(-size // _LEAST["memory"]), _SMALLEST["memory"])
    return Quantity.from_value(steps * _LEAST["memory"], Format.BINARY_SI)


def patch(
    target: Target, namespace: str, found: Mapping[str, Mapping[str, Evidence]], headroom: int
) -> dict[str, Any]:
    """What kubectl is to apply."""
    containers = []
    for name, known in found.items():
        if known:
            pairs = {each: proposed(each, what, headroom) for each, what in known.items()}
            resources = {
                "requests": {each: str(pair[0]) for each, pair in pairs.items()},
                "limits": {each: str(pair[1]) for each, pair in pairs.items()},
            }
            containers.append({"name": name, "resources": resources})
    inner = {"containers": containers}
    spec = inner if target.resource.kind == "Pod" else {"template": {"spec": inner}}
    return {
        "apiVersion": target.resource.api_version,
        "kind": target.resource.kind,
        "metadata": {"name": target.name, "namespace": namespace},
        "spec": spec,
    }


def _comments(
    target: Target,
    declared: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, Mapping[str, Evidence]],
    headroom: int,
) -> Iterator[str]:
    what = f"{target.resource.singular}/{target.name}"
    resize = " --subresource resize" if target.resource.kind == "Pod" else ""
    yield f"# Apply with: kubectl patch {what}{resize} --patch-file FILE"
    for name, known in found.items():
        if not known:
            yield f"# {name}: nothing has been reported of it"
        for resource, seen in known.items():
            request, limit = proposed(resource, seen, headroom)
            now = declared[name]
            yield (
                f"# {name} {resource}: 95th {seen.usual}, max {seen.most} in the {seen.window}"
                f" window ({human_age(seen.seconds)} seen, {_pods(seen.pods)}); request"
                f" {_declared(now, 'requests', resource)} -> {request}, limit"
                f" {_declared(now, 'limits', resource)} -> {limit} (max + {headroom}%)"
            )


def _declared(resources: Mapping[str, Any], sort: str, resource: str) -> str:
    return str((resources.get(sort) or {}).get(resource, "none"))


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
