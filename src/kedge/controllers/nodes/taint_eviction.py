"""Deletes pods that do not tolerate a NoExecute taint, immediately or after their toleration."""

from typing import Final

import msgspec

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodCondition
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.events import NORMAL, Recorder
from kedge.client.informer import Key
from kedge.controllers.disruptions.budget import TARGET
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.nodes.condition_taints import no_execute_taints, tolerated_seconds
from kedge.controllers.pod_marks import mark
from kedge.controllers.pod_state import is_leaving, node_of
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "taint-eviction-controller"
WORKERS: Final = 8
REASON: Final = "TaintManagerEviction"
EVICTED: Final = PodCondition(
    type=TARGET,
    status="True",
    reason="DeletionByTaintManager",
    message="Taint manager: deleting due to NoExecute taint",
)


class _ScheduledEviction(msgspec.Struct, frozen=True):
    """A pod and the time of its deletion."""

    uid: str
    at: float


class TaintEvictionController:
    """Schedules the deletion of pods on tainted nodes, from the first sight of the taint."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pods = shared.of(PODS)
        self._nodes = shared.of(NODES)
        self._on_node = self._pods.by(node_of)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._doomed: dict[Key, _ScheduledEviction] = {}
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "taint-eviction", self._reconcile, clock, workers=WORKERS
        )
        self._pods.follow(self._pod_changed)
        self._nodes.follow(self._node_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        if now is None:
            if before is not None and key_of(before) in self._doomed:
                self._loop.add(key_of(before))
            return
        if before is not None and _placed(before) == _placed(now):
            return
        if key_of(now) in self._doomed or no_execute_taints(self._nodes.get(now.spec.nodeName)):
            self._loop.add(key_of(now))

    def _node_changed(self, before: Node | None, now: Node | None) -> None:
        if no_execute_taints(before) == no_execute_taints(now):
            return
        for node in (before, now):
            if node is not None:
                for pod in self._on_node.get(node.metadata.name):
                    self._loop.add(key_of(pod))

    async def _reconcile(self, key: Key) -> None:
        pod = self._pods.get(key.name, key.namespace)
        doom = self._doomed.get(key)
        if doom is not None and (pod is None or pod.metadata.uid != doom.uid):
            del self._doomed[key]
        if pod is None or is_leaving(pod):
            return
        seconds = self._patience(pod)
        if seconds is None:
            self._spare(pod)
        elif seconds == 0:
            await self._evict(pod)
        else:
            await self._evict_in_time(pod, seconds)

    async def _evict_in_time(self, pod: Pod, seconds: float) -> None:
        """The clock starts once: other taints and tolerations do not begin it anew."""
        now, key = self._clock.monotonic(), key_of(pod)
        doom = self._doomed.setdefault(key, _ScheduledEviction(pod.metadata.uid, now + seconds))
        if doom.at <= now:
            await self._evict(pod)
        else:
            self._loop.add_later(key, doom.at - now)

    def _patience(self, pod: Pod) -> float | None:
        taints = no_execute_taints(self._nodes.get(pod.spec.nodeName))
        return tolerated_seconds(pod.spec.tolerations, taints) if taints else None

    def _spare(self, pod: Pod) -> None:
        if self._doomed.pop(key_of(pod), None) is not None:
            self._tell(pod, "Cancelling deletion of Pod")

    async def _evict(self, pod: Pod) -> None:
        meta = pod.metadata
        self._tell(pod, "Marking for deletion Pod")
        try:
            await mark(self._client, self._pods, pod, EVICTED, self._clock.now())
            options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
            await self._client.delete(PODS, meta.name, meta.namespace, options=options)
        except StatusError as error:
            if error.code != 404:
                raise
        self._doomed.pop(key_of(pod), None)
        await self._pods.until(
            key_of(pod), lambda now: now is None or now.metadata.uid != meta.uid or is_leaving(now)
        )

    def _tell(self, pod: Pod, what: str) -> None:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self._recorder.record(pod, NORMAL, REASON, f"{what} {name}")


def _placed(pod: Pod) -> tuple[object, ...]:
    return pod.metadata.uid, pod.spec.nodeName, list(pod.spec.tolerations)
