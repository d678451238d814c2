"""Collects the pods, events and logs that a report describes."""

from collections.abc import Mapping
from typing import Any, Final

from kedge.api.core_v1.event import RESOURCE as EVENTS
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.client.client import path_of
from kedge.cluster import report
from kedge.cluster.objects import KubeObject, ObjectApi, ObjectRef
from kedge.cluster.report import LogTail, Observation
from kedge.machinery.errors import StatusError

MOST_LOGS: Final = 8
"""Pods whose logs are in a report; those that are not ready come first."""
LOG_BYTES: Final = 16 << 10


async def of_object(api: ObjectApi, ref: ObjectRef, found: KubeObject | None) -> Observation:
    """Return an object with its pods, and the events about them."""
    about = await events(api, ref, ref.namespace)
    if found is None:
        return Observation(events=about)
    pods = await pods_of(api, found)
    names = {ref.name, *(pod["metadata"]["name"] for pod in pods)}
    if ref.namespace:
        every = await events(api, None, ref.namespace)
        about = [each for each in every if each["involvedObject"].get("name") in names]
    is_pod = ref.resource.kind == "Pod"
    return Observation(() if is_pod else (found,), pods, about, await logs(api, pods))


async def of_namespace(api: ObjectApi, namespace: str) -> Observation:
    """Return the pods, events and logs of a namespace."""
    pods, _ = await api.list(PODS, namespace)
    about = await events(api, None, namespace)
    return Observation((), pods, about, await logs(api, pods))


async def events(api: ObjectApi, ref: ObjectRef | None, namespace: str) -> list[KubeObject]:
    """Return the events of a namespace, or those about one object, oldest first."""
    query = {}
    if ref is not None:
        kind = ref.resource.kind
        query["fieldSelector"] = f"involvedObject.kind={kind},involvedObject.name={ref.name}"
    found, _ = await api.list(EVENTS, namespace, query)
    return sorted(found, key=report.time_of)


async def pods_of(api: ObjectApi, obj: Mapping[str, Any]) -> list[KubeObject]:
    """Return the pods of a workload or a Service; a pod itself is its only pod."""
    if obj.get("kind") == "Pod":
        return [dict(obj)]
    labels = _pod_labels(obj.get("spec"))
    if not labels:
        return []
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    found, _ = await api.list(PODS, obj["metadata"]["namespace"], {"labelSelector": selector})
    return found


def _pod_labels(spec: object) -> Mapping[str, str]:
    """Return the labels that select the pods of an object; empty if it has no pods."""
    selector = spec.get("selector") if isinstance(spec, Mapping) else None
    if not isinstance(selector, Mapping):
        return {}
    labels = selector.get("matchLabels", selector)
    if not isinstance(labels, Mapping) or not all(isinstance(v, str) for v in labels.values()):
        return {}
    return labels


async def logs(api: ObjectApi, pods: list[KubeObject]) -> list[LogTail]:
    """Return the ends of the logs of pods, those first that are not ready."""
    chosen = sorted(pods, key=_is_ready)[:MOST_LOGS]
    return [
        LogTail(pod["metadata"]["name"], name, await _end_of_log(api, pod, name))
        for pod in chosen
        for name in _started(pod)
    ]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    found = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in found)


def _started(pod: Mapping[str, Any]) -> list[str]:
    """Return the containers that have a log."""
    status = pod.get("status") or {}
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return [
        each["name"] for each in every if "waiting" not in (each.get("state") or {"waiting": 0})
    ]


async def _end_of_log(api: ObjectApi, pod: Mapping[str, Any], container: str) -> str:
    query = {
        "container": container,
        "tailLines": str(report.LOG_LINES),
        "limitBytes": str(LOG_BYTES),
    }
    try:
        return await log(api, pod, query)
    except StatusError as error:
        return f"(no log: {error.message})"


async def log(api: ObjectApi, pod: Mapping[str, Any], query: Mapping[str, str]) -> str:
    """Return the log of a container."""
    meta = pod["metadata"]
    path = path_of(PODS, meta["namespace"], meta["name"], "log")
    reply = await api.session.client.send("GET", path, query, accept="*/*")
    return reply.body.decode(errors="replace")
