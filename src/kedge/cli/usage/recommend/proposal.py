"""Requests and limits proposed from the measured usage, as a patch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kedge.api.apps_v1 import controller_revision, replica_set
from kedge.api.apps_v1.controller_revision import ControllerRevision
from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.core_v1.pod.resources import qos_class
from kedge.api.metrics_v1alpha1 import pod
from kedge.api.metrics_v1alpha1.pod import Pod
from kedge.api.metrics_v1alpha1.windows import Metrics
from kedge.api.model import Object
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.targets import ObjectTarget, kind_of
from kedge.cli.output import outputs
from kedge.machinery.durations import human_age, parse_time
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Format, Quantity
from kedge.machinery.selectors import labels_from_map, labels_from_object
from kedge.metrics.windows import DAY, HOUR

_HOUR: Final = 3600
_DAY: Final = 86400
_STORAGE: Final = "ephemeral-storage"
_LEAST: Final = {"cpu": 1_000_000, "memory": 1 << 20, _STORAGE: 1 << 20}
"""The steps in which amounts are proposed: a thousandth of a core (in nanos), a mebibyte."""
_SMALLEST: Final = {"cpu": 10, "memory": 16, _STORAGE: 16}
"""The least that is proposed, in steps."""
RESOURCES: Final = tuple(_LEAST)
_DEPLOYMENT_REVISION: Final = "deployment.kubernetes.io/revision"
_TEMPLATE_LABEL: Final = "pod-template-hash"
_REVISION_LABEL: Final = "controller-revision-hash"
Owned = TypeVar("Owned", bound=Object)


class UsageEvidence(NamedTuple):
    """The pods' usage of one resource in one container."""

    window: str
    seconds: int
    """How much time has been seen."""
    pods: int
    usual: Quantity
    """The greatest of the 95th percentiles."""
    most: Quantity


async def show(connection: ApiSession, word: str, headroom: int) -> int:
    """Print the patch."""
    (target,) = await connection.targets([word])
    if not target.name:
        raise Failure("name a workload or pod, such as deploy/web")
    namespace = connection.within(target.resource)
    document = await connection.get(target.resource, target.name, namespace)
    measured = await _measured(connection, target, document, namespace)
    declared = _containers(target, document)
    found = {name: evidence(measured, name) for name in declared}
    if not any(found.values()):
        raise Failure(
            f"nothing has been reported lately of {word}: a pod is measured from ten seconds after"
            " its start on"
        )
    class_ = _kept_class(target, document)
    sizes = sized(found, headroom, class_)
    if target.resource.kind == "Pod":
        sizes = resizable(sizes)
    print("\n".join(_comments(target, class_, declared, found, sizes, headroom)))
    print(outputs.yaml_text(patch(target, namespace, declared, sizes)))
    return 0


async def _measured(
    connection: ApiSession, target: ObjectTarget, document: Mapping[str, Any], namespace: str
) -> list[Pod]:
    if target.resource.kind == "Pod":
        return await _of_pod(connection, target.name, namespace)
    selector = (document.get("spec") or {}).get("selector")
    if not selector or "template" not in document["spec"]:
        raise Failure(f"{kind_of(target.resource)} has no pods of its own: name a workload or pod")
    plain = target.resource.kind == "ReplicationController"
    labels = str(labels_from_map(selector) if plain else labels_from_object(selector))
    revision = await _revision(connection, target, document, namespace, labels)
    chosen = ",".join(filter(None, (labels, revision)))
    return (await connection.client.list(pod.RESOURCE, namespace, labels=chosen)).items


async def _revision(
    connection: ApiSession,
    target: ObjectTarget,
    document: Mapping[str, Any],
    namespace: str,
    labels: str,
) -> str:
    """Return the label selector of the pods that have the current template; empty for a workload
    without revisions. Pods of an old template may have used more or less."""
    match target.resource.kind:
        case "Deployment":
            sets = (
                await connection.client.list(replica_set.RESOURCE, namespace, labels=labels)
            ).items
            return current_replica_set(document["metadata"], sets)
        case "StatefulSet":
            revision = (document.get("status") or {}).get("updateRevision", "")
            return f"{_REVISION_LABEL}={revision}" if revision else ""
        case "DaemonSet":
            kept = await connection.client.list(
                controller_revision.RESOURCE, namespace, labels=labels
            )
            return current_revision(document["metadata"], kept.items)
        case _:
            return ""


def current_replica_set(owner: Mapping[str, Any], sets: Iterable[Object]) -> str:
    """Return the label selector of the pods of a Deployment's current ReplicaSet."""
    wanted = (owner.get("annotations") or {}).get(_DEPLOYMENT_REVISION)
    for each in _owned(owner, sets):
        if each.metadata.annotations.get(_DEPLOYMENT_REVISION) == wanted:
            return _selector_of(each, _TEMPLATE_LABEL)
    return ""


def current_revision(owner: Mapping[str, Any], kept: Iterable[ControllerRevision]) -> str:
    """Return the label selector of the pods of a DaemonSet's newest revision."""
    newest = max(_owned(owner, kept), key=lambda each: each.revision, default=None)
    return "" if newest is None else _selector_of(newest, _REVISION_LABEL)


def _owned(owner: Mapping[str, Any], objects: Iterable[Owned]) -> Iterator[Owned]:
    for each in objects:
        if any(of.uid == owner["uid"] for of in each.metadata.ownerReferences):
            yield each


def _selector_of(obj: Object, label: str) -> str:
    value = obj.metadata.labels.get(label, "")
    return f"{label}={value}" if value else ""


async def _of_pod(connection: ApiSession, name: str, namespace: str) -> list[Pod]:
    """Return the usage of a pod as a list; empty if the server has none."""
    try:
        return [await connection.client.get(pod.RESOURCE, name, namespace)]
    except StatusError as error:
        if error.code == 404:
            return []
        raise


class DeclaredSizes(NamedTuple):
    """A container as it is declared now."""

    among: str
    """In which list of the pod: containers, or initContainers for one that stays beside them."""
    resources: Mapping[str, Any]


def _containers(target: ObjectTarget, document: Mapping[str, Any]) -> dict[str, DeclaredSizes]:
    """The containers by name; those that only prepare the others are over before they count."""
    spec = document["spec"]
    inner = spec if target.resource.kind == "Pod" else spec["template"]["spec"]
    return {
        each["name"]: DeclaredSizes(among, each.get("resources") or {})
        for among in ("containers", "initContainers")
        for each in inner.get(among) or ()
        if among == "containers" or each.get("restartPolicy") == "Always"
    }


def _kept_class(target: ObjectTarget, document: Mapping[str, Any]) -> str:
    """The class of service that a pod has, since none can be resized into another."""
    if target.resource.kind != "Pod":
        return ""
    return qos_class(core_pod.RESOURCE.from_document(dict(document)))


def evidence(pods: Sequence[Pod], container: str) -> dict[str, UsageEvidence]:
    """Return the usage of a container, by resource."""
    seen = [
        each.metrics for pod in pods for each in pod.containers if each.metadata.name == container
    ]
    spans = [_span(windows["1d"]) for windows in seen if "1d" in windows]
    length = "1d" if spans and max(spans) > HOUR else "1h"
    chosen = [windows[length] for windows in seen if length in windows]
    found = {}
    for resource in RESOURCES:
        usual = [each.ninety_fifth[resource] for each in chosen if resource in each.ninety_fifth]
        most = [each.max[resource] for each in chosen if resource in each.max]
        if usual and most:
            seconds = min(max(spans), HOUR if length == "1h" else DAY)
            found[resource] = UsageEvidence(length, seconds, len(usual), max(usual), max(most))
    return found


def _span(window: Metrics) -> int:
    if not window.starttime:
        return DAY
    return int((parse_time(window.endtime) - parse_time(window.starttime)).total_seconds())


Size = tuple[Quantity, Quantity]
"""A request and a limit."""
Sizes = Mapping[str, Mapping[str, Size]]
"""By container, by resource."""


def sized(
    found: Mapping[str, Mapping[str, UsageEvidence]], headroom: int, class_: str = ""
) -> dict[str, dict[str, Size]]:
    """Return the proposed sizes; those of a pod keep its QoS class."""
    sizes = {
        name: {each: proposed(each, what, headroom) for each, what in known.items()}
        for name, known in found.items()
        if known
    }
    if class_ == "Guaranteed":
        return {
            name: {each: (limit, limit) for each, (_, limit) in known.items()}
            for name, known in sizes.items()
        }
    pairs = [pair for known in sizes.values() for pair in known.values()]
    if class_ == "Burstable" and all(request == limit for request, limit in pairs):
        # The least room between the two is what tells the classes apart.
        for known in sizes.values():
            if "cpu" in known:
                request, limit = known["cpu"]
                known["cpu"] = request, limit + Quantity.from_milli(1)
    return sizes


def resizable(sizes: Sizes) -> dict[str, dict[str, Size]]:
    """Return the sizes that a pod accepts while it runs: all but those of ephemeral storage."""
    return {
        name: {each: size for each, size in known.items() if each != _STORAGE}
        for name, known in sizes.items()
    }


def proposed(resource: str, found: UsageEvidence, headroom: int) -> Size:
    """The request and the limit."""
    request = _rounded(resource, found.usual.nanos)
    limit = _rounded(resource, found.most.nanos * (100 + headroom) // 100)
    return request, max(request, limit)


def _rounded(resource: str, nanos: int) -> Quantity:
    """Return an amount in steps that people read, and not less than what is proposed at all."""
    return _amount(resource, max(_steps(resource, nanos), _SMALLEST[resource]))


def _steps(resource: str, nanos: int) -> int:
    used = nanos if resource == "cpu" else -(-nanos // 1_000_000_000)
    return -(-used // _LEAST[resource])


def _amount(resource: str, steps: int) -> Quantity:
    if resource == "cpu":
        return Quantity.from_milli(steps)
    return Quantity.from_value(steps * _LEAST[resource], Format.BINARY_SI)


def patch(
    target: ObjectTarget, namespace: str, declared: Mapping[str, DeclaredSizes], sizes: Sizes
) -> dict[str, Any]:
    """Return the patch to apply with kubectl."""
    inner: dict[str, list[Any]] = {}
    for name, known in sizes.items():
        now = declared[name].resources
        resources = {
            "requests": {each: str(request) for each, (request, _) in known.items()},
            "limits": {each: str(limit) for each, (_, limit) in known.items() if _has(now, each)},
        }
        among = inner.setdefault(declared[name].among, [])
        among.append({"name": name, "resources": resources})
    spec = inner if target.resource.kind == "Pod" else {"template": {"spec": inner}}
    return {
        "apiVersion": target.resource.api_version,
        "kind": target.resource.kind,
        "metadata": {"name": target.name, "namespace": namespace},
        "spec": spec,
    }


def _has(declared: Mapping[str, Any], resource: str) -> bool:
    """Whether a limit is proposed. One of storage is only changed: files and logs may grow slower
    than the windows are long, and the pod is evicted when they reach a limit."""
    return resource != _STORAGE or resource in (declared.get("limits") or {})


def _comments(
    target: ObjectTarget,
    class_: str,
    declared: Mapping[str, DeclaredSizes],
    found: Mapping[str, Mapping[str, UsageEvidence]],
    sizes: Sizes,
    headroom: int,
) -> Iterator[str]:
    yield f"# {_how(target, class_)}"
    for name, known in found.items():
        if not known:
            yield f"# {name}: nothing has been reported of it"
        for resource, seen in known.items():
            change = "a pod that runs keeps its own"
            if resource in sizes[name]:
                change = _change(
                    declared[name].resources, resource, sizes[name][resource], headroom
                )
            yield (
                f"# {name} {resource}: 95th {_readable(resource, seen.usual)}, max"
                f" {_readable(resource, seen.most)} in the {seen.window} window"
                f" ({human_age(seen.seconds)} seen, {_pods(seen.pods)}); {change}"
            )


def _change(now: Mapping[str, Any], resource: str, size: Size, headroom: int) -> str:
    request, limit = size
    changed = f"request {_declared(now, 'requests', resource)} -> {request}, limit"
    if not _has(now, resource):
        return f"{changed} none (a pod that exceeds one is evicted)"
    return f"{changed} {_declared(now, 'limits', resource)} -> {limit} (max + {headroom}%)"


def _readable(resource: str, used: Quantity) -> Quantity:
    return _amount(resource, _steps(resource, used.nanos))


def _how(target: ObjectTarget, class_: str) -> str:
    """Return how to apply the patch."""
    if target.resource.kind == "Job":
        return "The pods of a Job cannot be changed: use this in the manifest of the next Job"
    if class_ == "BestEffort":
        return (
            "A pod that has asked for nothing cannot be resized: have this in the manifest of the"
            " next one, or of what makes it"
        )
    resize = " --subresource resize" if class_ else ""
    what = f"{target.resource.singular}/{target.name}"
    return f"Apply with: kubectl patch {what}{resize} --patch-file FILE"


def _declared(resources: Mapping[str, Any], sort: str, resource: str) -> str:
    return str((resources.get(sort) or {}).get(resource, "none"))


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
