"""NodeSimulator: all simulated nodes of a cluster, with one watch of nodes and one of pods."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node, is_simulated
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.client.client import (
    STRATEGIC_PATCH,
    Client,
    DeletionOptions,
    DeletionPreconditions,
    path_of,
)
from kedge.client.clock_follower import ClockFollower
from kedge.client.events import Recorder
from kedge.client.informer import Informer
from kedge.client.object_views import ObjectViews
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.machinery.travel_clock import TravelClock
from kedge.node.pod.event_recorder import PodEventRecorder
from kedge.node.pod.status.conditions import OWN, SCHEDULED
from kedge.node.pod.status.patch import beside_loop, status_patch
from kedge.node.pod.status.status import rejected_status
from kedge.node.pod.termination import TERMINAL_PHASES
from kedge.simulated_nodes.addresses import SimulatedAddresses
from kedge.simulated_nodes.heartbeats import Heartbeats
from kedge.simulated_nodes.node_object import address_of
from kedge.simulated_nodes.pod_life import LifeStep, PodLife, PodPlace, adopted, advance
from kedge.simulated_nodes.pod_usage import SimulatedPodUsage
from kedge.simulated_nodes.simulated_machine import SimulatedMachine
from kedge.simulated_nodes.simulated_pod import SimulatedPod, version_of
from kedge.simulated_nodes.usage_reports import SimulatedUsageReports

log = logging.getLogger(__name__)

COMPONENT: Final = "kubelet"
MANAGER: Final = "kubelet"
WORKERS: Final = 32
"""Pods whose status is written at a time. Writes that arrive together share a commit."""
RENEWAL_SECONDS: Final = 9.0
"""Seconds for the renewal of all leases after a test has moved the clock. The server waits 10."""
RETRY_SECONDS: Final = 1.0
"""Seconds before a pod of a silent node is tried again."""
TOO_LARGE_REASON: Final = "StatusTooLarge"
TOO_LARGE_MESSAGE: Final = "the status of its containers exceeds the size of an object"


class _VersionOnly(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Written(msgspec.Struct, frozen=True):
    metadata: _VersionOnly = _VersionOnly()


_written = msgspec.json.Decoder(_Written)


class _NextStep(NamedTuple):
    """The life of a pod at one moment, and the patch that tells the API of it."""

    step: LifeStep
    patch: bytes
    """Empty if nothing has changed."""


class NodeSimulator:
    """Simulates every node that has the label for it. The owner must `run` it."""

    def __init__(
        self,
        client: Client,
        client_of: Callable[[str], Client],
        clock: Clock,
        grace: float,
        views: ObjectViews,
    ) -> None:
        """`client` acts as an administrator, those of `client_of` as the node of that name. `grace`
        is the number of seconds after which a node without heartbeat is unreachable."""
        self._client = client
        self._client_of = client_of
        self._views = views
        self._clock = clock
        self._addresses = SimulatedAddresses()
        self._machines: dict[str, SimulatedMachine] = {}
        self._real: set[str] = set()
        """The names of all other nodes."""
        self._pods: dict[str, SimulatedPod] = {}
        self._on_node: dict[str, dict[str, SimulatedPod]] = {}
        self._early: dict[str, dict[str, Pod]] = {}
        """By node: pods that were bound to a node which the watch of nodes has yet to show."""
        self._recorder = Recorder(client, clock, COMPONENT)
        self._heartbeats = Heartbeats(self._machines, clock, grace)
        self._usage = SimulatedUsageReports(self._machines, self._usage_on, clock)
        self._arrivals: ControllerLoop[str] = ControllerLoop(
            "simulated-node-arrivals", self._welcome, clock
        )
        """Nodes that are new: they do not wait for their turn among the heartbeats."""
        self._loop: ControllerLoop[str] = ControllerLoop(
            "simulated-nodes", self._reconcile, clock, workers=WORKERS
        )

    async def run(self) -> None:
        """Simulate until cancelled."""
        nodes = Informer(self._client, self._views.of(NODES), _NodeReceiver(self), self._clock)
        # A pod without a node does not concern any node.
        pods = Informer(
            self._client,
            self._views.of(PODS),
            _PodReceiver(self),
            self._clock,
            fields="spec.nodeName!=",
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recorder.run())
            tasks.create_task(nodes.run())
            await nodes.synced.wait()
            tasks.create_task(self._arrivals.run())
            if isinstance(self._clock, TravelClock):
                tasks.create_task(self._follow_clock(self._clock.machine))
            tasks.create_task(self._heartbeats.run())
            tasks.create_task(self._usage.run())
            tasks.create_task(pods.run())
            await pods.synced.wait()
            tasks.create_task(self._loop.run())

    async def _follow_clock(self, machine: Clock) -> None:
        """Renew all leases when a test has moved the clock. The nodes share the server's clock, so
        the one that is moved here has no readers. But the time that was skipped counts for the
        silence of nodes when this follower asks for the next change."""
        follower = ClockFollower(self._client, TravelClock(machine))
        await follower.run(self._heartbeats.renew_all, RENEWAL_SECONDS)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _usage_on(self, node: str) -> Iterable[SimulatedPodUsage]:
        return [pod.usage for pod in self._on_node.get(node, {}).values()]

    # Nodes.

    def put_node(self, node: Node) -> None:
        """Take over a node that is new or has changed."""
        name = node.metadata.name
        if not is_simulated(node.metadata.labels):
            self._forget_node(name)
            self._real.add(name)
            self._early.pop(name, None)
            return
        self._real.discard(name)
        machine = self._machines.get(name)
        if machine is None:
            address = address_of(node) or self._addresses.take()
            self._addresses.reserve(address)
            client = self._client_of(name)
            self._machines[name] = SimulatedMachine(node, address, client, self._now())
            self._arrivals.add(name)
            for pod in self._early.pop(name, {}).values():
                self.put_pod(pod)
            return
        before = machine.annotations
        machine.update(node, self._now())
        if machine.annotations != before:
            for uid in self._on_node.get(name, ()):
                self._loop.add(uid)

    async def _welcome(self, name: str) -> None:
        await self._heartbeats.renew([name])

    def remove_node(self, name: str) -> None:
        """Forget a node that was deleted. Controllers delete its pods."""
        self._real.discard(name)
        self._forget_node(name)

    def node_names(self) -> set[str]:
        return {*self._machines, *self._real}

    def _forget_node(self, name: str) -> None:
        machine = self._machines.pop(name, None)
        if machine is None:
            return
        self._addresses.release(machine.address)
        self._usage.forget(name)
        for uid, known in list(self._on_node.pop(name, {}).items()):
            self._forget_pod(uid)
            # A node of the same name may follow before controllers delete its pods.
            self._early.setdefault(name, {})[uid] = known.pod

    # Pods.

    def put_pod(self, pod: Pod) -> None:
        """Take over a pod that is new or has changed."""
        uid, node = pod.metadata.uid, pod.spec.nodeName
        machine = self._machines.get(node)
        if machine is None:
            if node not in self._real:
                self._early.setdefault(node, {})[uid] = pod
            return
        known = self._pods.get(uid)
        if known is None:
            self._begin(pod, machine)
        elif version_of(pod) >= known.version:
            before, known.pod = known.pod, pod
            is_reported = pod.status == known.life.status
            if is_reported:
                # One status instead of two: it is a third of a decoded pod.
                known.life = replace(known.life, status=pod.status)
            if _concerns(before, pod) or not is_reported:
                self._loop.add(uid)

    def _begin(self, pod: Pod, machine: SimulatedMachine) -> None:
        if pod.status.phase in TERMINAL_PHASES:
            return
        life = adopted(pod)
        address = pod.status.podIP
        if address:
            self._addresses.reserve(address)
        elif not pod.spec.hostNetwork:
            address = self._addresses.take()
        made = SimulatedPod(pod, life, machine, address)
        self._pods[pod.metadata.uid] = made
        self._on_node.setdefault(machine.name, {})[pod.metadata.uid] = made
        self._loop.add(pod.metadata.uid)

    def remove_pod(self, pod: Pod) -> None:
        """Forget a pod that is gone."""
        self._forget_early(pod)
        self._forget_pod(pod.metadata.uid)

    def _forget_pod(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is None:
            return
        self._on_node.get(known.machine.name, {}).pop(uid, None)
        known.machine.has_news = True
        if known.address and not known.pod.spec.hostNetwork:
            self._addresses.release(known.address)

    def _forget_early(self, pod: Pod) -> None:
        node = pod.spec.nodeName
        waiting = self._early.get(node, {})
        waiting.pop(pod.metadata.uid, None)
        if not waiting:
            self._early.pop(node, None)

    def forget_pods_except(self, uids: set[str]) -> None:
        """Forget all pods that a new list does not have."""
        for uid in self._pods.keys() - uids:
            self._forget_pod(uid)
        for pod in [pod for pods in self._early.values() for pod in pods.values()]:
            if pod.metadata.uid not in uids:
                self._forget_early(pod)

    async def _reconcile(self, uid: str) -> None:
        known = self._pods.get(uid)
        if known is None:
            return
        now, machine = self._now(), known.machine
        place = PodPlace(machine.address, known.address, machine.annotations)
        step, patch = await beside_loop(known.pod, _next_step, known.life, known.pod, place, now)
        known.follow_usage(step, now)
        known.life = step.life.at_rest()
        self._record(known, step)
        if step.wake is not None:
            self._loop.add_later(uid, step.wake - now)
        try:
            await self._write(known, step, patch)
        except OSError:
            # The node is silent: as a real one it goes on, and reports when it can.
            self._loop.add_later(uid, RETRY_SECONDS)
        except StatusError as error:
            # The watch tells that the pod is gone, too. A conflict may be one of a fault that a
            # test injects: the pod is tried again.
            if error.code != HTTPStatus.NOT_FOUND:
                raise

    def _record(self, known: SimulatedPod, step: LifeStep) -> None:
        if known.recorder is None:
            if not step.plan.waiting and not step.events:
                return
            known.recorder = PodEventRecorder(self._recorder, known.pod)
        for event in step.events:
            known.recorder.record_container(*event)
        known.recorder.record_waiting(step.plan)

    async def _write(self, known: SimulatedPod, step: LifeStep, patch: bytes) -> None:
        is_deleting = bool(known.pod.metadata.deletionTimestamp)
        if patch:
            try:
                await self._patch(known, step.status, patch)
            except StatusError as error:
                if error.code != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                    raise
                # No later status is shorter. A pod that is deleted needs none.
                if not is_deleting:
                    await self._give_up(known)
                    return
        if step.is_over and is_deleting and not known.is_deleted:
            meta = known.pod.metadata
            options = DeletionOptions(
                grace_period_seconds=0, preconditions=DeletionPreconditions(uid=meta.uid)
            )
            await known.machine.client.delete(PODS, meta.name, meta.namespace, options=options)
            known.is_deleted = True

    async def _patch(self, known: SimulatedPod, status: PodStatus, patch: bytes) -> None:
        meta = known.pod.metadata
        reply = await known.machine.client.send(
            "PATCH",
            path_of(PODS, meta.namespace, meta.name, "status"),
            {"fieldManager": MANAGER},
            body=patch,
            content=STRATEGIC_PATCH,
        )
        version = _written.decode(reply.body).metadata.resource_version
        if int(version) > known.version:
            written = replace(known.pod.metadata, resourceVersion=version)
            known.pod = replace(known.pod, metadata=written, status=status)

    async def _give_up(self, known: SimulatedPod) -> None:
        """Let a pod fail whose status cannot be stored. To try again would fail for ever."""
        status = _too_large_status(known.pod, self._clock.now())
        patch = await beside_loop(known.pod, _encoded_patch, known.pod, status)
        await self._patch(known, status, patch)
        self._forget_pod(known.pod.metadata.uid)


def _next_step(life: PodLife, pod: Pod, place: PodPlace, now: float) -> _NextStep:
    step = advance(life, pod, place, now)
    return _NextStep(step, _encoded_patch(pod, step.status))


def _encoded_patch(pod: Pod, status: PodStatus) -> bytes:
    patch = status_patch(pod, status)
    return b"" if patch is None else msgspec.json.encode(patch)


def _too_large_status(pod: Pod, now: datetime) -> PodStatus:
    status = rejected_status(pod, TOO_LARGE_REASON, TOO_LARGE_MESSAGE, now)
    kept = [each for each in status.conditions if each.type == SCHEDULED or each.type not in OWN]
    return replace(status, conditions=kept)


def _concerns(before: Pod, after: Pod) -> bool:
    """Return whether a change of a pod, its status apart, may change its life."""
    old, new = before.metadata, after.metadata
    return (
        old.generation != new.generation
        or old.deletionTimestamp != new.deletionTimestamp
        or old.deletionGracePeriodSeconds != new.deletionGracePeriodSeconds
        or old.annotations != new.annotations
    )


class _NodeReceiver:
    """Fulfils kedge.client.informer.Receiver."""

    def __init__(self, simulator: NodeSimulator) -> None:
        self._simulator = simulator

    def replace(self, objects: Iterable[Node]) -> None:
        listed = list(objects)
        for name in self._simulator.node_names() - {each.metadata.name for each in listed}:
            self._simulator.remove_node(name)
        # Those with an address first: others get one that is free.
        for each in sorted(listed, key=lambda node: not address_of(node)):
            self._simulator.put_node(each)

    def put(self, obj: Node) -> None:
        self._simulator.put_node(obj)

    def remove(self, obj: Node) -> None:
        self._simulator.remove_node(obj.metadata.name)


class _PodReceiver:
    """Fulfils kedge.client.informer.Receiver."""

    def __init__(self, simulator: NodeSimulator) -> None:
        self._simulator = simulator

    def replace(self, objects: Iterable[Pod]) -> None:
        listed = list(objects)
        self._simulator.forget_pods_except({each.metadata.uid for each in listed})
        # Those with an address first: others get one that is free.
        for each in sorted(listed, key=lambda pod: not pod.status.podIP):
            self._simulator.put_pod(each)

    def put(self, obj: Pod) -> None:
        self._simulator.put_pod(obj)

    def remove(self, obj: Pod) -> None:
        self._simulator.remove_pod(obj)
