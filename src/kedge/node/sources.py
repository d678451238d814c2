"""Config maps, secrets, services and tokens, as far as the pods of this node use them.

A node may read only what its pods refer to, each by its name.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from kedge.api.core_v1 import config_map, secret, service, service_account
from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.core_v1.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.service_types import Service
from kedge.api.resource import Resource, T
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer
from kedge.client.view import objects
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

_LIFE: Final = 3607
"""Seconds that a token lasts unless the volume says otherwise."""


class Token(NamedTuple):
    """Proof of who a pod is."""

    text: str
    issued: datetime
    expires: datetime

    def is_old(self, now: datetime) -> bool:
        """Whether it is time for another: after four fifths of its life, or a day."""
        age, life = now - self.issued, self.expires - self.issued
        return age >= life * 0.8 or age.total_seconds() > 86400


class Sources:
    """Reads through the API, with the node's own rights."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._services: Cache[Service] = Cache()
        self._follow = Informer(client, objects(service.RESOURCE), self._services, clock)

    async def run(self) -> None:
        """For ever: follow the services."""
        await self._follow.run()

    async def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return await self._get(config_map.RESOURCE, namespace, name)

    async def secret(self, namespace: str, name: str) -> Secret | None:
        return await self._get(secret.RESOURCE, namespace, name)

    async def _get(self, resource: Resource[T], namespace: str, name: str) -> T | None:
        try:
            return await self._client.get(resource, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def services(self) -> Cache[Service]:
        """All services, known once the first list has come."""
        await self._follow.synced.wait()
        return self._services

    async def token(self, pod: Pod, audience: str, seconds: int | None) -> Token:
        """A token for the pod's service account that is worth nothing once the pod is gone."""
        spec: dict[str, Any] = {
            "expirationSeconds": seconds or _LIFE,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
            },
        }
        if audience:
            spec["audiences"] = [audience]
        answer = await self._client.exchange(
            "POST",
            service_account.RESOURCE,
            pod.spec.serviceAccountName or "default",
            "token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
            namespace=pod.metadata.namespace,
        )
        status: Mapping[str, str] = answer["status"]
        expires = datetime.fromisoformat(status["expirationTimestamp"])
        return Token(status["token"], self._clock.now(), expires)


Change = Callable[[], None]


class Following:
    """Watches the config maps and secrets that pods show as files, so that files follow them."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tasks: asyncio.TaskGroup | None = None
        self._watches: dict[tuple[str, str, str], tuple[asyncio.Task[None], set[str]]] = {}
        self._told: dict[str, Change] = {}

    async def run(self) -> None:
        """For ever: own the watches."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.get_running_loop().create_future()

    def hold(self, uid: str, references: set[tuple[str, str, str]], change: Change) -> None:
        """Tell of changes to these, each (plural, namespace, name), from now on and until
        released."""
        self._told[uid] = change
        for reference in references:
            if reference in self._watches:
                self._watches[reference][1].add(uid)
            elif self._tasks is not None:
                task = self._tasks.create_task(self._watch(reference))
                self._watches[reference] = (task, {uid})

    def release(self, uid: str) -> None:
        self._told.pop(uid, None)
        for reference, (task, holders) in list(self._watches.items()):
            holders.discard(uid)
            if not holders:
                task.cancel()
                del self._watches[reference]

    async def _watch(self, reference: tuple[str, str, str]) -> None:
        plural, namespace, name = reference
        resource: Resource[Any] = secret.RESOURCE if plural == "secrets" else config_map.RESOURCE
        cache: Cache[Any] = Cache()
        cache.listen(lambda _: self._tell(reference))
        informer = Informer(
            self._client,
            objects(resource),
            cache,
            self._clock,
            namespace=namespace,
            fields=f"metadata.name={name}",
        )
        await informer.run()

    def _tell(self, reference: tuple[str, str, str]) -> None:
        watched = self._watches.get(reference)
        for uid in sorted(watched[1]) if watched else ():
            if told := self._told.get(uid):
                told()
