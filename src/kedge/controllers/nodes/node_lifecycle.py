"""Marks nodes without heartbeat as unknown, taints nodes by their conditions, evicts their pods."""

from typing import Final

from msgspec.structs import replace

from kedge.api.coordination_v1.lease import RESOURCE as LEASES
from kedge.api.coordination_v1.lease import Lease
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.client import Client
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.nodes import condition_taints
from kedge.controllers.nodes.node_health import EXCLUDED, GRACE, STARTUP_GRACE, silent, zone_of
from kedge.controllers.nodes.zones import EvictionRate, ZoneState, rate_of, state_of
from kedge.controllers.pod_marks import mark
from kedge.controllers.pod_state import condition, is_ready, node_of
from kedge.controllers.shared_informers import SharedInformers
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time, parse_time
from kedge.machinery.errors import StatusError
from kedge.machinery.travel_clock import sign_of_life

COMPONENT: Final = "node-controller"
WORKERS: Final = 8
LEASES_NAMESPACE: Final = "kube-node-lease"
NEVER_HEARD: Final = "NodeStatusNeverUpdated"

Zone = tuple[str, str]


class NodeLifecycleController:
    """Counts silence from when it last heard of a node itself, by its own clock: neither clocks
    that differ nor a control plane that was down make a node look dead."""

    def __init__(
        self, client: Client, shared: SharedInformers, clock: Clock, *, grace: float = GRACE
    ) -> None:
        self._client = client
        self._clock = clock
        self._grace = grace
        self._nodes = shared.of(NODES)
        self._pods = shared.of(PODS)
        self._on_node = self._pods.by(node_of)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[str] = ControllerLoop(
            "node-lifecycle", self._reconcile, clock, workers=WORKERS
        )
        self._heard: dict[str, float] = {}
        """When each node last gave a sign of life."""
        self._renewals: dict[str, str] = {}
        """The last renewal of each lease."""
        self._silent: set[str] = set()
        """Nodes whose heartbeat is overdue."""
        self._unmarked: set[str] = set()
        """Silent nodes whose pods may still be said to be ready."""
        self._zones: dict[Zone, EvictionRate] = {}
        self._lost = False
        """Whether no node anywhere is ready."""
        self._unsurveyed = False
        self._nodes.follow(self._node_changed)
        self._pods.follow(self._pod_changed)
        shared.of(LEASES).follow(self._lease_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: which nodes to reconcile.

    def _lease_changed(self, before: Lease | None, now: Lease | None) -> None:
        if now is None:
            if before is not None:
                self._renewals.pop(before.metadata.name, None)
            return
        if now.metadata.namespace != LEASES_NAMESPACE:
            return
        if before is None or before.spec.renewTime != now.spec.renewTime:
            self._renewals[now.metadata.name] = now.spec.renewTime
            self._hear(now.metadata.name)

    def _hear(self, name: str) -> None:
        if self._nodes.get(name) is None:
            return
        self._heard[name] = sign_of_life(self._clock)
        if name in self._silent:
            self._loop.add(name)

    def _node_changed(self, before: Node | None, now: Node | None) -> None:
        if now is None:
            if before is not None:
                self._forget(before)
            return
        name = now.metadata.name
        if before is None or before.metadata.uid != now.metadata.uid:
            self._meet(now)
        elif _reported(before) != _reported(now):
            self._heard[name] = sign_of_life(self._clock)
        if before is None or _looks(before) != _looks(now):
            self._unsurveyed = True
            self._loop.add(name)

    def _meet(self, node: Node) -> None:
        name = node.metadata.name
        self._tell(node, "RegisteredNode", f"event: Registered Node {name} in Controller")
        self._heard[name] = sign_of_life(self._clock)
        if not condition_taints.readiness(node) and node.metadata.creationTimestamp:
            age = self._clock.now() - parse_time(node.metadata.creationTimestamp)
            self._heard[name] -= max(age.total_seconds(), 0.0)
        if condition_taints.readiness(node) == "Unknown":
            self._unmarked.add(name)

    def _forget(self, node: Node) -> None:
        name = node.metadata.name
        self._tell(node, "RemovingNode", f"event: Removing Node {name} from Controller")
        self._heard.pop(name, None)
        self._renewals.pop(name, None)
        self._silent.discard(name)
        self._unmarked.discard(name)
        self._unsurveyed = True
        self._loop.add(name)

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        """Reconcile the node of a ready pod that was bound to a node without heartbeat."""
        if now is None or not now.spec.nodeName or not is_ready(now):
            return
        if before is not None and before.spec.nodeName == now.spec.nodeName:
            return
        node = self._nodes.get(now.spec.nodeName)
        if node is not None and condition_taints.readiness(node) == "Unknown":
            self._unmarked.add(node.metadata.name)
            self._loop.add(node.metadata.name)

    # One node.

    async def _reconcile(self, name: str) -> None:
        if self._unsurveyed:
            self._survey()
        node = self._nodes.get(name)
        if node is None:
            return
        if self._is_silent(node) and not await self._has_renewed(node):
            node = await self._silence(node)
        await self._retaint(node)
        if name in self._unmarked:
            await self._mark_pods(name)

    def _is_silent(self, node: Node) -> bool:
        """Whether a node has been silent for too long; if not, it is looked at again in time."""
        name, now = node.metadata.name, self._clock.monotonic()
        grace = self._grace if condition_taints.readiness(node) else STARTUP_GRACE
        left = self._heard[name] + grace - now
        if left <= 0:
            self._silent.add(name)
            return True
        self._silent.discard(name)
        self._loop.add_later(name, left)
        return False

    async def _has_renewed(self, node: Node) -> bool:
        """Whether the lease was renewed and the watch has not delivered it yet. Nodes renew their
        leases as soon as time was skipped on purpose, and this controller wakes at the same
        moment."""
        name = node.metadata.name
        if condition_taints.readiness(node) == "Unknown":
            return False
        try:
            lease = await self._client.get(LEASES, name, LEASES_NAMESPACE)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        if lease.spec.renewTime == self._renewals.get(name):
            return False
        self._renewals[name] = lease.spec.renewTime
        self._hear(name)
        return not self._is_silent(node)

    async def _silence(self, node: Node) -> Node:
        """Say that nothing is known of the node any more."""
        changed = silent(node, format_time(self._clock.now()))
        if changed == node:
            return node
        written = await self._client.update(NODES, changed, subresource="status")
        if condition_taints.readiness(node) == "True":
            self._tell(node, "NodeNotReady", "status is now: NodeNotReady")
        self._unmarked.add(node.metadata.name)
        await self._nodes.written(written)
        return written

    async def _retaint(self, node: Node) -> None:
        eviction = self._eviction_key(node)
        taints = condition_taints.updated_taints(node, eviction, format_time(self._clock.now()))
        if taints == list(node.spec.taints):
            return
        changed = replace(node, spec=replace(node.spec, taints=taints))
        await self._nodes.written(await self._client.update(NODES, changed))

    def _eviction_key(self, node: Node) -> str:
        """Return the key of the NoExecute taint that a node should have now; empty if none.

        A node without such a taint needs a permit of its zone, which limits the rate of evictions.
        A node that has one may get the other one without a permit.
        """
        wanted = condition_taints.required_eviction_key(node)
        if not wanted or self._lost:
            return ""
        if condition_taints.eviction_key(node):
            return wanted
        zone = self._zones.get(zone_of(node))
        if zone is None:
            # The node has just moved: it is on the list again.
            return ""
        seconds = zone.take(self._clock.monotonic())
        if seconds == 0:
            return wanted
        if seconds is not None:
            self._loop.add_later(node.metadata.name, seconds)
        return ""

    async def _mark_pods(self, name: str) -> None:
        """Pods of a silent node are not ready, whatever was said last."""
        for pod in self._on_node.get(name):
            said = condition(pod, "Ready")
            if said is None or said.status == "False":
                continue
            try:
                no = replace(said, status="False")
                await mark(self._client, self._pods, pod, no, self._clock.now())
            except StatusError as error:
                if error.code != 404:
                    raise
                continue
            self._recorder.record(pod, WARNING, "NodeNotReady", "Node is not ready")
        self._unmarked.discard(name)

    # All nodes.

    def _survey(self) -> None:
        """See how each zone is doing, and what follows for how fast its nodes are given up."""
        self._unsurveyed = False
        zones: dict[Zone, list[Node]] = {}
        for node in self._nodes:
            zones.setdefault(zone_of(node), []).append(node)
        states = {zone: _state(nodes) for zone, nodes in zones.items()}
        lost = bool(states) and all(state is ZoneState.FULL for state in states.values())
        if self._lost and not lost:
            # This controller saw no heartbeats for a while, so missing ones prove nothing.
            now = self._clock.monotonic()
            self._heard = dict.fromkeys(self._heard, now)
        again = lost != self._lost
        self._lost = lost
        self._zones = {zone: self._zones.get(zone) or EvictionRate() for zone in zones}
        for zone, nodes in zones.items():
            rate = rate_of(states[zone], len(nodes), everywhere=lost)
            if self._zones[zone].change(rate) or again:
                for node in nodes:
                    self._loop.add(node.metadata.name)

    def _tell(self, node: Node, reason: str, what: str) -> None:
        self._recorder.record(node, NORMAL, reason, f"Node {node.metadata.name} {what}")


def _state(nodes: list[Node]) -> ZoneState:
    heeded = [node for node in nodes if EXCLUDED not in node.metadata.labels]
    return state_of(condition_taints.readiness(node) == "True" for node in heeded)


def _reported(node: Node) -> str:
    """When the node itself last said how it is."""
    ready = condition_taints.condition(node, "Ready")
    return ready.lastHeartbeatTime if ready and ready.reason != NEVER_HEARD else ""


def _looks(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that this controller reads, except the heartbeat."""
    conditions = [(each.type, each.status) for each in node.status.conditions]
    spec = node.spec
    zone = zone_of(node), EXCLUDED in node.metadata.labels
    return conditions, list(spec.taints), spec.unschedulable, zone
