"""DeviceTaintEvictionController: deletes pods whose devices have a NoExecute taint."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodCondition
from kedge.api.resource_v1 import resource_claim, resource_slice
from kedge.api.resource_v1.device_request import NO_EXECUTE
from kedge.api.resource_v1.device_taints import tolerated_seconds
from kedge.api.resource_v1.pod_claims import known_names
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_claim_status import DeviceRequestAllocationResult
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.resource_v1.resource_slice_types import DeviceTaint
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.events import NORMAL, Recorder
from kedge.client.informer import Key
from kedge.controllers.disruptions.budget import TARGET
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.pod_marks import mark
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import StatusError

COMPONENT: Final = "device-taint-eviction"
WORKERS: Final = 8
REASON: Final = "DeviceTaintManagerEviction"
EVICTED: Final = PodCondition(
    type=TARGET,
    status="True",
    reason="DeletionByDeviceTaintManager",
    message="Device Taint manager: deleting due to NoExecute taint",
)


class DeviceTaintEvictionController:
    """Looks at a claim when it or the slices of its devices change, or when a pod with it gets a
    node, and at it again in time."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pods = shared.of(PODS)
        self._claims = shared.of(resource_claim.RESOURCE)
        self._slices = shared.of(resource_slice.RESOURCE)
        self._by_pool = self._slices.by(_pool)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._doomed: set[str] = set()
        """Uids of pods whose deletion was announced."""
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "device-taint-eviction", self._reconcile, clock, workers=WORKERS
        )
        self._pods.follow(self._pod_changed)
        self._claims.follow(self._claim_changed)
        self._slices.follow(self._slice_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        if now is None or not now.spec.nodeName:
            return
        if before is None or (before.metadata.uid, before.spec.nodeName) != (
            now.metadata.uid,
            now.spec.nodeName,
        ):
            for name in known_names(now):
                self._loop.add(Key(now.metadata.namespace, name))

    def _claim_changed(self, before: ResourceClaim | None, now: ResourceClaim | None) -> None:
        if now is not None and now.status.allocation is not None:
            self._loop.add(key_of(now))

    def _slice_changed(self, before: ResourceSlice | None, now: ResourceSlice | None) -> None:
        if not (_is_tainted(before) or _is_tainted(now)):
            return
        pools = {_pool(each) for each in (before, now) if each is not None}
        for claim in self._claims:
            if any((each.driver, each.pool) in pools for each in _results(claim)):
                self._loop.add(key_of(claim))

    async def _reconcile(self, key: Key) -> None:
        claim = self._claims.get(key.name, key.namespace)
        if claim is None:
            return
        pods = list(self._users(claim))
        moment = self._eviction_time(claim)
        if moment is None:
            for pod in pods:
                self._spare(pod)
            return
        left = (moment - self._clock.now()).total_seconds()
        if left > 0:
            self._doomed.update(pod.metadata.uid for pod in pods)
            self._loop.add_later(key, left)
            return
        for pod in pods:
            await self._evict(pod)

    def _users(self, claim: ResourceClaim) -> Iterator[Pod]:
        for each in claim.status.reservedFor:
            pod = self._pods.get(each.name, claim.metadata.namespace)
            if pod is not None and pod.metadata.uid == each.uid and _is_running(pod):
                yield pod

    def _eviction_time(self, claim: ResourceClaim) -> datetime | None:
        """Return when the pods of a claim are to go; None if they may stay."""
        found: list[datetime] = []
        for result in _results(claim):
            for taint in self._taints(result):
                seconds = tolerated_seconds(result.tolerations, taint)
                if seconds is not None:
                    since = parse_time(taint.timeAdded) if taint.timeAdded else self._clock.now()
                    found.append(since + timedelta(seconds=seconds))
        return min(found, default=None)

    def _taints(self, result: DeviceRequestAllocationResult) -> Iterator[DeviceTaint]:
        """Yield the NoExecute taints of a device in the newest generation of its pool."""
        slices = self._by_pool.get((result.driver, result.pool))
        newest = max((each.spec.pool.generation for each in slices), default=0)
        for slice_ in slices:
            if slice_.spec.pool.generation == newest:
                for device in slice_.spec.devices:
                    if device.name == result.device:
                        yield from (each for each in device.taints if each.effect == NO_EXECUTE)

    def _spare(self, pod: Pod) -> None:
        if pod.metadata.uid in self._doomed:
            self._doomed.discard(pod.metadata.uid)
            self._recorder.record(pod, NORMAL, REASON, "Cancelling deletion")

    async def _evict(self, pod: Pod) -> None:
        meta = pod.metadata
        self._doomed.discard(meta.uid)
        self._recorder.record(pod, NORMAL, REASON, "Marking for deletion")
        try:
            await mark(self._client, self._pods, pod, EVICTED, self._clock.now())
            options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
            await self._client.delete(PODS, meta.name, meta.namespace, options=options)
        except StatusError as error:
            if error.code != 404:
                raise
        await self._pods.left(pod)


def _is_running(pod: Pod) -> bool:
    """Whether a pod is on a node and neither ends nor has ended."""
    if not pod.spec.nodeName or is_leaving(pod):
        return False
    return pod.status.phase not in ("Succeeded", "Failed")


def _pool(item: ResourceSlice) -> tuple[str, str]:
    return item.spec.driver, item.spec.pool.name


def _is_tainted(item: ResourceSlice | None) -> bool:
    return item is not None and any(device.taints for device in item.spec.devices)


def _results(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    if claim.status.allocation is not None:
        yield from claim.status.allocation.devices.results
