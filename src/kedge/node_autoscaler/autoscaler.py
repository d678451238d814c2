"""NodeAutoscaler: compares the cluster with its pods every few seconds, and adds or removes a node.

All its state is in the cluster: a node that is being removed has a taint, a node that was added has
an agent or a Node object. So a process that was killed at any moment continues where it was.
"""

import asyncio
import logging
from typing import Final

from kedge.api.core_v1 import node as core_node
from kedge.api.core_v1.node_types import Node
from kedge.client.client import Client
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node_autoscaler.cluster_state import TAINT, ClusterState, is_draining, is_ready
from kedge.node_autoscaler.eviction import evict
from kedge.node_autoscaler.pool import NodePool
from kedge.node_autoscaler.reading import read_cluster
from kedge.node_autoscaler.scale_down import CalmPeriods, least_used, unneeded
from kedge.node_autoscaler.scale_up import ScaleUp, scale_up

log = logging.getLogger(__name__)

COMPONENT: Final = "cluster-autoscaler"
"""The name under which its users know the events."""
GROUP: Final = "local"
"""The name of the group of nodes in messages."""
PAUSE_SECONDS: Final = 2.0
DRAIN_SECONDS: Final = 600.0
"""How long a node may be drained before it is kept, as with cluster-autoscaler."""


class NodeAutoscaler:
    """Adds and removes the nodes of a pool. The owner must `run` it."""

    def __init__(self, client: Client, clock: Clock, pool: NodePool, calm_seconds: float) -> None:
        """A node is removed after it has not been needed for `calm_seconds`."""
        self._client = client
        self._clock = clock
        self._pool = pool
        self._calm_seconds = calm_seconds
        self._calm = CalmPeriods()
        self.recorder = Recorder(client, clock, COMPONENT)
        self._refused: dict[str, str] = {}
        """The reason that each waiting pod was given last, by uid."""

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.recorder.run())
            while True:
                try:
                    await self.step()
                except (StatusError, Unreachable, OSError) as error:
                    log.warning("nodes not compared with pods, retrying error=%s", error)
                await self._clock.sleep(PAUSE_SECONDS)

    async def step(self) -> None:
        """Look at the cluster once, and do what is due."""
        state = await read_cluster(self._client)
        await self._start_missing(state)
        for name in self._pool.names:
            if name in state.nodes and is_draining(state.nodes[name]):
                await self._drain(state, name)
        decision = self._decide(state)
        if decision.nodes:
            self._calm = CalmPeriods()
            await self._add(decision, state)
        else:
            await self._consider_removal(state)

    async def _start_missing(self, state: ClusterState) -> None:
        """Start the agents of nodes that have a Node object and are not being removed."""
        running = self._pool.running()
        for name in self._pool.names:
            node = state.nodes.get(name)
            if node is not None and not is_draining(node) and name not in running:
                log.info("agent started again node=%s", name)
                await self._pool.start(name)

    def _decide(self, state: ClusterState) -> ScaleUp:
        present = self._pool.running() | (state.nodes.keys() & set(self._pool.names))
        starting = [name for name in self._pool.names if name in present and _starts(state, name)]
        spare = [name for name in self._pool.names if name not in present]
        decision = scale_up(state, starting, spare)
        self._tell_refused(decision)
        return decision

    def _tell_refused(self, decision: ScaleUp) -> None:
        """Record why pods do not add a node, once for each reason."""
        for pod, why in decision.refused:
            if self._refused.get(pod.metadata.uid) != why:
                message = f"pod didn't trigger scale-up: {why}"
                self.recorder.record(pod, NORMAL, "NotTriggerScaleUp", message)
        self._refused = {pod.metadata.uid: why for pod, why in decision.refused}

    async def _add(self, decision: ScaleUp, state: ClusterState) -> None:
        present = self._pool.running() | (state.nodes.keys() & set(self._pool.names))
        now = self._pool.least + len(present)
        most = self._pool.least + len(self._pool.names)
        for name in decision.nodes:
            log.info("node added node=%s pods=%d", name, len(decision.pods))
            await self._pool.start(name)
        message = (
            f"pod triggered scale-up: [{{{GROUP} {now}->{now + len(decision.nodes)}"
            f" (max: {most})}}]"
        )
        for pod in decision.pods:
            self.recorder.record(pod, NORMAL, "TriggeredScaleUp", message)

    async def _consider_removal(self, state: ClusterState) -> None:
        idle = unneeded(state, self._pool.names)
        now = self._clock.monotonic()
        self._calm = self._calm.observe(idle, now)
        if any(is_draining(node) for node in state.nodes.values()):
            return  # one after the other: each removal changes where pods fit
        if name := least_used(self._calm.over(now, self._calm_seconds), idle):
            await self._mark(state.nodes[name])

    async def _mark(self, node: Node) -> None:
        """Begin to remove a node: nothing new is placed there."""
        taints = [*core_node.RESOURCE.to_document(node)["spec"].get("taints", ())]
        moment = str(int(self._clock.now().timestamp()))
        taints.append({"key": TAINT, "value": moment, "effect": "NoSchedule"})
        await self._patch(node, {"taints": taints, "unschedulable": True})
        message = "marked the node as toBeDeleted/unschedulable"
        self.recorder.record(node, NORMAL, "ScaleDown", message)

    async def _unmark(self, node: Node) -> None:
        document = core_node.RESOURCE.to_document(node)
        taints = [each for each in document["spec"].get("taints", ()) if each["key"] != TAINT]
        await self._patch(node, {"taints": taints, "unschedulable": None})

    async def _patch(self, node: Node, spec: dict[str, object]) -> None:
        version = node.metadata.resourceVersion
        await self._client.patch(
            core_node.RESOURCE,
            node.metadata.name,
            {"metadata": {"resourceVersion": version}, "spec": spec},
        )

    async def _drain(self, state: ClusterState, name: str) -> None:
        """Evict the pods of a node, and remove it when they are gone."""
        node, left = state.nodes[name], state.moving(name)
        if not left:
            await self._remove(node)
            return
        if self._drains_too_long(node):
            await self._unmark(node)
            message = "failed to drain the node, aborting ScaleDown"
            self.recorder.record(node, WARNING, "ScaleDownFailed", message)
            return
        for pod in left:
            # If its budget is exhausted, the next look tries again.
            if not pod.metadata.deletionTimestamp and await evict(self._client, pod):
                message = "deleting pod for node scale down"
                self.recorder.record(pod, NORMAL, "ScaleDown", message)

    def _drains_too_long(self, node: Node) -> bool:
        began = next(each.value for each in node.spec.taints if each.key == TAINT)
        age = self._clock.now().timestamp() - int(began) if began.isdigit() else 0.0
        return age > DRAIN_SECONDS

    async def _remove(self, node: Node) -> None:
        name = node.metadata.name
        await self._pool.stop(name)
        try:
            await self._client.delete(core_node.RESOURCE, name)
        except StatusError as error:
            if error.code != 404:
                raise
        log.info("node removed node=%s", name)
        message = "node removed by cluster autoscaler"
        self.recorder.record(node, NORMAL, "ScaleDown", message)


def _starts(state: ClusterState, name: str) -> bool:
    """Whether a node was added and is not ready yet."""
    node = state.nodes.get(name)
    return node is None or (not is_ready(node) and not is_draining(node))
