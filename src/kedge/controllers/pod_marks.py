"""The pod conditions that controllers set."""

from datetime import datetime
from typing import Any

from msgspec.structs import asdict, replace

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import PodCondition
from kedge.client.client import STRATEGIC_PATCH, Client
from kedge.controllers.pod_state import condition
from kedge.controllers.shared_informers import ObjectCache
from kedge.machinery.durations import format_time


def stated(pod: Pod, said: PodCondition, now: datetime) -> PodCondition:
    """A condition as it is written: about the pod as it is, and since when it has been so."""
    old = condition(pod, said.type)
    since = old.lastTransitionTime if old and old.status == said.status else format_time(now)
    return replace(said, observedGeneration=pod.metadata.generation, lastTransitionTime=since)


async def mark(
    client: Client, pods: ObjectCache[Pod], pod: Pod, said: PodCondition, now: datetime
) -> None:
    """Say something of a pod, whatever else is being said of it; returns when that is known."""
    meta = pod.metadata
    fields: dict[str, Any] = asdict(stated(pod, said, now))
    new = {name: value or None for name, value in fields.items()}
    patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [new]}}
    written = await client.patch(
        RESOURCE, meta.name, patch, meta.namespace, form=STRATEGIC_PATCH, subresource="status"
    )
    await pods.written(written)
