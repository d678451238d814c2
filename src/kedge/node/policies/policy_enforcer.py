"""Keeps the rules of network policies in the kernel in step with policies, pods and namespaces."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv4Network
from typing import Final, Protocol

from kedge.client.informer import Key
from kedge.machinery.clock import Clock
from kedge.node.network.attached_pods import AttachedPod, AttachedPods
from kedge.node.network.nftables.batch import Batch
from kedge.node.network.ruleset import Ruleset, WayOutAddress
from kedge.node.policies.compiled_policy import compile_policy
from kedge.node.policies.fair_queue import FairQueue
from kedge.node.policies.member_set import HostedPort
from kedge.node.policies.policy_chains import policy_chains
from kedge.node.policies.policy_datapath import EnforcedPolicy, PolicyDatapath
from kedge.node.policies.policy_events import PolicyEvents
from kedge.node.policies.policy_objects import NetworkPolicy, PolicyPod, policy_pod
from kedge.node.policies.policy_watch import PolicyWatch

log = logging.getLogger(__name__)

MERGE_SECONDS: Final = 0.005
"""Changes of so many seconds are written together."""
ROUND_SECONDS: Final = 0.05
"""After so many seconds of work on one kind of object, the result so far is written."""
RETRY_SECONDS: Final = 5.0


class WrittenTable(Protocol):
    """The table in the kernel (kedge.node.network.policy_table)."""

    async def rewrite(self, content: Callable[[], Ruleset]) -> None: ...

    async def apply(self, change: Callable[[str], Batch]) -> None: ...

    async def clear(self) -> None: ...


class KernelState(Enum):
    """The content of the kernel's table, as far as this agent knows."""

    UNKNOWN = 1
    """Perhaps the table of a previous agent, or of before a failure."""
    NO_TABLE = 2
    WRITTEN = 3
    """The table that was last confirmed."""


class PolicyEnforcer:
    """Programs policies into a node's table. The owner must `run` it."""

    def __init__(
        self,
        watch: PolicyWatch,
        table: WrittenTable,
        attached: AttachedPods,
        events: PolicyEvents,
        clock: Clock,
        *,
        network: IPv4Network,
        hosted: Sequence[HostedPort],
        way_out: WayOutAddress | None = None,
    ) -> None:
        self._watch = watch
        self._table = table
        self._attached = attached
        self._events = events
        self._clock = clock
        self._datapath = PolicyDatapath(network, hosted, way_out)
        self._holders: dict[IPv4Address, Key] = {}
        """The pod that has each address, as the datapath knows it."""
        self._policies, self._pods, self._namespaces = FairQueue(), FairQueue(), FairQueue()
        self._woken = asyncio.Event()
        self._kernel = KernelState.UNKNOWN
        watch.policies.listen(lambda key: self._note(self._policies, key))
        watch.pods.listen(lambda key: self._note(self._pods, key))
        watch.namespaces.listen(lambda key: self._note(self._namespaces, key))
        attached.listen(self._note_attached)
        for address, pod in attached.by_address.items():
            self._note_attached(address, pod)

    async def run(self) -> None:
        """Follow policies until cancelled."""
        while True:
            await self._watch.synced()
            await self._recompute()
            ready = [address for address, pod in self._attached.waiting().items() if self._has(pod)]
            if await self._write():
                self._attached.confirm(ready)
                await self._woken.wait()
                if not self._attached.waiting():
                    await self._clock.sleep(MERGE_SECONDS)
            else:
                await self._clock.sleep(RETRY_SECONDS)

    def _note(self, dirty: FairQueue, key: Key) -> None:
        dirty.add(key)
        self._woken.set()

    def _note_attached(self, address: IPv4Address, pod: AttachedPod) -> bool:
        self._note(self._pods, Key(pod.namespace, pod.name))
        if address in self._holders:
            self._note(self._pods, self._holders[address])
        # Only policies of its own namespace isolate a pod.
        return (
            not self._watch.are_policies_known
            or self._policies.has_any_of(pod.namespace)
            or self._datapath.has_policies(pod.namespace)
        )

    def _has(self, pod: AttachedPod) -> bool:
        """Return whether the datapath has a pod, and all policies of its namespace."""
        is_pending = Key(pod.namespace, pod.name) in self._pods
        return not is_pending and not self._policies.has_any_of(pod.namespace)

    async def _recompute(self) -> None:
        """Compute what changed: pods that wait first, then some of everything."""
        self._woken.clear()
        for pod in self._attached.waiting().values():
            key = Key(pod.namespace, pod.name)
            self._pods.discard(key)
            await self._update(self._update_pod, key)
        for dirty, update in (
            (self._namespaces, self._update_namespace),
            (self._policies, self._update_policy),
            (self._pods, self._update_pod),
        ):
            end = self._clock.monotonic() + ROUND_SECONDS
            while dirty and self._clock.monotonic() < end:
                await self._update(update, dirty.pop())
        if self._namespaces or self._policies or self._pods:
            self._woken.set()

    async def _update(self, update: Callable[[Key], Awaitable[Iterator[None]]], key: Key) -> None:
        try:
            for _ in await update(key):
                await self._clock.give_way()
        except Exception:
            # One bad object must not end the agent: it would end the next one too.
            log.exception("object skipped object=%s/%s", *key)
        await self._clock.give_way()

    async def _update_policy(self, key: Key) -> Iterator[None]:
        found = self._watch.policies.get(key.name, key.namespace)
        if found is None:
            self._events.forget(key)
            return self._datapath.remove_policy(key)
        # In a thread: its author chooses how large it is.
        enforced = await asyncio.to_thread(enforced_policy, found)
        self._events.report_excess(found, enforced.policy.excess)
        return self._datapath.put_policy(key, enforced)

    async def _update_namespace(self, key: Key) -> Iterator[None]:
        found = self._watch.namespaces.get(key.name)
        if found is None:
            return self._datapath.remove_namespace(key.name)
        return self._datapath.put_namespace(key.name, found.metadata.labels or {})

    async def _update_pod(self, key: Key) -> Iterator[None]:
        pod = self._known_pod(key)
        if pod is None:
            return self._datapath.remove_pod(key)
        if pod.address is not None:
            self._holders[pod.address] = key
        return self._datapath.put_pod(pod)

    def _known_pod(self, key: Key) -> PolicyPod | None:
        """Return a pod as the API and this node know it together. A pod of this node has its
        address before the API says so, and an address belongs to the pod that got it last."""
        found = self._watch.pods.get(key.name, key.namespace)
        pod = policy_pod(found) if found is not None else None
        here = self._attached.address_of(*key)
        if here is not None:
            if pod is None:
                return PolicyPod(*key, self._attached.by_address[here].labels, here)
            return pod._replace(address=here)
        if pod is not None and pod.address in self._attached.by_address:
            return pod._replace(address=None)
        return pod

    async def _write(self) -> bool:
        """Bring the kernel up to date."""
        try:
            if self._datapath.is_empty:
                await self._remove_table()
            elif self._kernel is not KernelState.WRITTEN or not await self._change():
                await self._table.rewrite(self._datapath.content.everything)
                self._datapath.content.confirm()
                self._kernel = KernelState.WRITTEN
        except OSError as error:
            self._kernel = KernelState.UNKNOWN
            log.error("rules of policies cannot be written error=%s; retrying", error)
            self._events.report_failure(self._watch.policies, f"the kernel refuses it: {error}")
            return False
        return True

    async def _remove_table(self) -> None:
        if self._kernel is not KernelState.NO_TABLE:
            await self._table.clear()
            self._kernel = KernelState.NO_TABLE

    async def _change(self) -> bool:
        """Write the difference; return whether the kernel took it."""
        content = self._datapath.content
        try:
            await self._table.apply(content.change)
        except OSError as error:
            log.warning("rules of policies are written anew error=%s", error)
            return False
        content.confirm()
        return True


def enforced_policy(policy: NetworkPolicy) -> EnforcedPolicy:
    """Compile a policy and its chains."""
    compiled = compile_policy(policy)
    return EnforcedPolicy(compiled, policy_chains(compiled))
