"""Policies, pods and namespaces of the cluster, kept up to date by watches."""

import asyncio
from typing import Final

from kedge.api.core_v1 import namespace
from kedge.api.core_v1.pod import pod, pod_addresses
from kedge.api.core_v1.pod.pod_addresses import PodAddresses
from kedge.api.model import Document
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import View, sketches
from kedge.machinery.clock import Clock
from kedge.node.policies.policy_objects import LabelledNamespace, NetworkPolicy

_POLICIES: Final = Resource(
    type=Document, group="networking.k8s.io", plural="networkpolicies", kind="NetworkPolicy"
)


class PolicyWatch:
    """Watches policies, and pods and namespaces as soon as there is a policy. The owner must `run`
    it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.policies: Final[Cache[NetworkPolicy]] = Cache()
        self.pods: Final[Cache[PodAddresses]] = Cache()
        self.namespaces: Final[Cache[LabelledNamespace]] = Cache()
        self._first = Informer(client, sketches(_POLICIES, NetworkPolicy), self.policies, clock)
        self._others = (
            Informer(client, _pods(), self.pods, clock),
            Informer(client, _namespaces(), self.namespaces, clock),
        )
        self._needed = asyncio.Event()
        self.policies.listen(self._note)

    @property
    def are_policies_known(self) -> bool:
        return self._first.synced.is_set()

    async def synced(self) -> None:
        """Wait until everything that policies need has been listed once."""
        await self._first.synced.wait()
        if self._needed.is_set():
            for each in self._others:
                await each.synced.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._first.run())
            # Most clusters have no policies. Their nodes need not know the pods of others.
            await self._needed.wait()
            for each in self._others:
                tasks.create_task(each.run())

    def _note(self, key: Key) -> None:
        if len(self.policies):
            self._needed.set()


def _pods() -> View[PodAddresses]:
    """Pods without the parts that do not concern other nodes.

    Only kedge's server has them in this form. A kube-apiserver sends whole pods.
    """
    media_type = pod_addresses.MEDIA_TYPE
    return View(pod.RESOURCE, pod_addresses.decode, media_type, media_type, or_whole=True)


def _namespaces() -> View[LabelledNamespace]:
    return sketches(namespace.RESOURCE, LabelledNamespace)
