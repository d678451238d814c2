"""PodGarbageCollector: deletes pods of nodes that are gone, and ended pods above a threshold."""

import asyncio
from typing import Any, Final

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.client import STRATEGIC_PATCH, Client, DeletionOptions, DeletionPreconditions
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop
from kedge.controllers.pod_state import ENDED, is_leaving, node_of
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError

KEPT: Final = 12500
"""How many pods that have ended are kept."""
QUARANTINE: Final = 40.0
"""Seconds for which a node may be missing: it may only not be known yet."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_EVERYTHING: Final = "ended"


class PodGarbageCollector:
    """Reconciles after pods terminate, nodes are deleted, or ended pods exceed the threshold."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pods = shared.of(PODS)
        self._nodes = shared.of(NODES)
        self._ended = self._pods.by(_ended)
        self._on_node = self._pods.by(node_of)
        self._leaving: ControllerLoop[Key] = ControllerLoop(
            "podgc-leaving", self._see_to_leaving, clock
        )
        self._vanished: ControllerLoop[str] = ControllerLoop(
            "podgc-nodes", self._see_to_node, clock
        )
        self._surplus: ControllerLoop[str] = ControllerLoop(
            "podgc-ended", self._see_to_ended, clock
        )
        self._pods.follow(self._pod_changed)
        self._nodes.follow(self._node_changed)

    async def run(self) -> None:
        # Pods may have been known before any node was.
        for pod in self._pods:
            self._pod_changed(None, pod)
        async with asyncio.TaskGroup() as tasks:
            for loop in (self._leaving, self._vanished, self._surplus):
                tasks.create_task(loop.run())

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        if now is None:
            return
        if is_leaving(now):
            self._leaving.add(key_of(now))
        node = now.spec.nodeName
        if node and self._nodes.get(node) is None:
            self._vanished.add_later(node, QUARANTINE)
        if self._ended.count(_EVERYTHING) > KEPT:
            self._surplus.add(_EVERYTHING)

    def _node_changed(self, before: Node | None, now: Node | None) -> None:
        if now is None and before is not None:
            if self._on_node.count(before.metadata.name):
                self._vanished.add_later(before.metadata.name, QUARANTINE)
        elif now is not None and is_out_of_service(now):
            for pod in filter(is_leaving, self._on_node.get(now.metadata.name)):
                self._leaving.add(key_of(pod))

    async def _see_to_leaving(self, key: Key) -> None:
        """Remove a pod that is leaving if there is no node that could let it go."""
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or not is_leaving(pod) or _was_seen_to(pod):
            return
        node = self._nodes.get(pod.spec.nodeName) if pod.spec.nodeName else None
        if not pod.spec.nodeName or (node is not None and is_out_of_service(node)):
            await self._remove(pod)

    async def _see_to_node(self, name: str) -> None:
        """Remove the pods of a node that is gone for good."""
        pods = self._on_node.get(name)
        if not pods or self._nodes.get(name) is not None or await self._exists(name):
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": format_time(self._clock.now()),
        }
        for pod in pods:
            if not (is_leaving(pod) and _was_seen_to(pod)):
                await self._remove(pod, condition)

    async def _exists(self, name: str) -> bool:
        try:
            await self._client.get(NODES, name)
        except StatusError as error:
            if error.code == 404:
                return False
            raise
        return True

    async def _see_to_ended(self, _: str) -> None:
        """Remove the oldest pods that have ended, those that were evicted first."""
        pods = sorted(self._ended.get(_EVERYTHING), key=_expendable)
        for pod in pods[: max(len(pods) - KEPT, 0)]:
            if not is_leaving(pod):
                await self._remove(pod)

    async def _remove(self, pod: Pod, condition: dict[str, Any] | None = None) -> None:
        """Let a pod fail, if it has not ended, and delete it without waiting for anybody."""
        meta = pod.metadata
        try:
            if pod.status.phase not in ENDED:
                status = {"phase": "Failed", "conditions": [condition] if condition else []}
                await self._client.patch(
                    PODS,
                    meta.name,
                    {"metadata": {"uid": meta.uid}, "status": status},
                    meta.namespace,
                    form=STRATEGIC_PATCH,
                    subresource="status",
                )
            options = DeletionOptions(
                grace_period_seconds=0, preconditions=DeletionPreconditions(uid=meta.uid)
            )
            await self._client.delete(PODS, meta.name, meta.namespace, options=options)
        except StatusError as error:
            if error.code != 404:
                raise
        await self._pods.until(
            key_of(pod),
            lambda now: now is None or now.metadata.uid != meta.uid or _was_seen_to(now),
        )


def is_out_of_service(node: Node) -> bool:
    """Whether a node is not ready and has the out-of-service taint."""
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return not ready and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _was_seen_to(pod: Pod) -> bool:
    """Whether a pod only waits for its finalizers."""
    return pod.status.phase in ENDED and pod.metadata.deletionGracePeriodSeconds == 0


def _ended(pod: Pod) -> str | None:
    return _EVERYTHING if pod.status.phase in ENDED else None


def _expendable(pod: Pod) -> tuple[bool, str, str]:
    evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not evicted, pod.metadata.creationTimestamp, pod.metadata.name
