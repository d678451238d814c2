"""Events on policies that a node does not enforce, or not as a whole."""

import asyncio
from collections.abc import Iterable
from typing import Final

from kedge.api.core_v1.references import ObjectReference
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Key
from kedge.node.policies.policy_objects import NetworkPolicy
from kedge.node.policies.policy_watch import PolicyWatch

NOT_ENFORCED: Final = "NotEnforced"
PARTLY_ENFORCED: Final = "PartlyEnforced"


async def report_unenforced(watch: PolicyWatch, events: "PolicyEvents", reason: str) -> None:
    """Record an event on each policy, on a node that enforces none. Runs until cancelled."""
    changed: asyncio.Queue[Key] = asyncio.Queue()
    watch.policies.listen(changed.put_nowait)
    while True:
        key = await changed.get()
        found = watch.policies.get(key.name, key.namespace)
        if found is None:
            events.forget(key)
        else:
            events.report_failure([found], reason)


class PolicyEvents:
    """Records events on behalf of one node. Each problem of a policy is recorded once."""

    def __init__(self, recorder: Recorder, node: str) -> None:
        self._recorder = recorder
        self._node = node
        self._told: dict[Key, str] = {}

    def report_excess(self, policy: NetworkPolicy, excess: str) -> None:
        """Tell that a policy is too large; an empty text if it is not."""
        if excess:
            message = f"Node {self._node} leaves a part out, so that it stays denied: {excess}"
            self._tell(policy, PARTLY_ENFORCED, message)
        else:
            self.forget(_key(policy))

    def report_failure(self, policies: Iterable[NetworkPolicy], reason: str) -> None:
        """Tell that no policy is enforced, or only as it was before."""
        for each in policies:
            message = f"Node {self._node} does not enforce this policy: {reason}"
            self._tell(each, NOT_ENFORCED, message)

    def forget(self, key: Key) -> None:
        self._told.pop(key, None)

    def _tell(self, policy: NetworkPolicy, reason: str, message: str) -> None:
        key = _key(policy)
        if self._told.get(key) != message:
            self._told[key] = message
            self._recorder.record(_reference(policy), WARNING, reason, message)


def _key(policy: NetworkPolicy) -> Key:
    return Key(policy.metadata.namespace, policy.metadata.name)


def _reference(policy: NetworkPolicy) -> ObjectReference:
    meta = policy.metadata
    return ObjectReference(
        apiVersion="networking.k8s.io/v1",
        kind="NetworkPolicy",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
    )
