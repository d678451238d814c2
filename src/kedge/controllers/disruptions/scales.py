"""Scales: the desired replicas of the owners of pods."""

from collections.abc import Iterable
from typing import Any

from kedge.api.apps_v1 import deployment, replica_set, stateful_set
from kedge.api.core_v1 import replication_controller
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Object, OwnerReference
from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.controllers.shared_informers import ObjectCache, SharedInformers, controller_of
from kedge.machinery.errors import StatusError, qualified


class UnknownScale(Exception):
    """The desired number of pods of an owner cannot be found out."""


class OwnerScales:
    """Reads well-known owners from caches, and the scale subresource of the others."""

    def __init__(self, client: Client, shared: SharedInformers) -> None:
        self._client = client
        self._discovery = Discovery(client)
        self._deployments = shared.of(deployment.RESOURCE)
        self._replica_sets = shared.of(replica_set.RESOURCE)
        self._others: dict[tuple[str, str], ObjectCache[Any]] = {
            ("apps", "StatefulSet"): shared.of(stateful_set.RESOURCE),
            ("", "ReplicationController"): shared.of(replication_controller.RESOURCE),
        }

    async def of(self, pods: Iterable[Pod]) -> tuple[int, list[str]]:
        """How many pods all owners together want, and which pods have no owner.

        Raises Unscalable, or what the server says, if an owner cannot be asked.
        """
        wanted: dict[str, int] = {}
        unowned: list[str] = []
        asked: set[str] = set()
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                unowned.append(pod.metadata.name)
            elif owner.uid not in asked:
                asked.add(owner.uid)
                uid, replicas = await self._of_owner(owner, pod)
                wanted[uid] = replicas
        return sum(wanted.values()), unowned

    async def _of_owner(self, owner: OwnerReference, pod: Pod) -> tuple[str, int]:
        namespace = pod.metadata.namespace
        found = self._known(owner, namespace) or await self._asked(owner, namespace)
        if found is None:
            raise UnknownScale(f'found no controllers for pod "{pod.metadata.name}"')
        return found

    def _known(self, owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
        group, _, _ = owner.apiVersion.rpartition("/")
        if (group, owner.kind) == ("apps", "ReplicaSet"):
            return self._behind(owner, namespace)
        known = self._others.get((group, owner.kind))
        return None if known is None else _replicas(known, owner, namespace)

    def _behind(self, owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
        """The scale of a replica set, or of the deployment that it belongs to."""
        found = self._replica_sets.get(owner.name, namespace)
        if found is None or found.metadata.uid != owner.uid:
            return None
        above = controller_of(found)
        if above is not None and above.kind == "Deployment":
            return _replicas(self._deployments, above, namespace)
        return _replicas(self._replica_sets, owner, namespace)

    async def _asked(self, owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
        resource = (await self._discovery.served()).of_kind(owner.apiVersion, owner.kind)
        if resource is None:
            raise UnknownScale(
                f'no matches for kind "{owner.kind}" in version "{owner.apiVersion}"'
            )
        try:
            scale = await self._client.exchange(
                "GET", resource, owner.name, "scale", namespace=namespace
            )
        except StatusError as error:
            if error.code != 404:
                raise
            if (error.details or {}).get("name"):
                return None
            # This 404 is about the subresource, not about the owner.
            kind = qualified(resource.group, resource.plural)
            raise UnknownScale(f"{kind} does not implement the scale subresource") from None
        if scale["metadata"].get("uid") != owner.uid:
            return None
        return owner.uid, int(scale.get("spec", {}).get("replicas", 0))


def _replicas(
    known: ObjectCache[Any], owner: OwnerReference, namespace: str
) -> tuple[str, int] | None:
    found: Object | None = known.get(owner.name, namespace)
    if found is None or found.metadata.uid != owner.uid:
        return None
    replicas: int | None = found.spec.replicas  # type: ignore[attr-defined]
    return owner.uid, 1 if replicas is None else replicas
