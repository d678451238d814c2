"""Config maps, secrets, services and tokens, as far as the pods of this node use them.

A node may read only what its pods refer to, each by its name.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from kedge.api.core_v1 import config_map, secret, service, service_account
from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.service_types import Service
from kedge.api.resource import Resource, T
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer
from kedge.client.view import objects
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

Source = ConfigMap | Secret
_RESOURCES: Final[dict[str, Resource[Any]]] = {
    each.plural: each for each in (config_map.RESOURCE, secret.RESOURCE)
}
_LIFE: Final = 3600
"""Seconds that a token lasts unless the volume says otherwise."""
_DAY: Final = 86400


class Reference(NamedTuple):
    """A config map or a secret."""

    plural: str
    namespace: str
    name: str


class Token(NamedTuple):
    """Proof of who a pod is."""

    text: str
    issued: datetime
    expires: datetime

    def is_old(self, now: datetime) -> bool:
        """Whether it is time for another: after four fifths of its life, or a day."""
        age, life = now - self.issued, self.expires - self.issued
        return age >= life * 0.8 or age.total_seconds() > _DAY


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

    async def find(self, reference: Reference) -> Source | None:
        """A config map or secret as it is now; None if there is none."""
        found: Source | None = await self._get(
            _RESOURCES[reference.plural], reference.namespace, reference.name
        )
        return found

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


Change = Callable[[Reference], None]


class Following:
    """Watches the config maps and secrets that pods show as files, so that files follow them.

    One that is immutable is not watched any longer once it is known, as upstream does.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tasks: asyncio.TaskGroup | None = None
        self._watches: dict[Reference, _Watch] = {}
        self._told: dict[str, Change] = {}

    async def run(self) -> None:
        """For ever: own the watches."""
        async with asyncio.TaskGroup() as self._tasks:
            for watch in self._watches.values():
                watch.begin(self._tasks)
            await asyncio.get_running_loop().create_future()

    def hold(self, uid: str, references: Iterable[Reference], change: Change) -> None:
        """Tell a pod of changes to these, from now on and until it is released."""
        self._told[uid] = change
        for reference in references:
            if reference not in self._watches:
                self._watches[reference] = watch = self._watch(reference)
                if self._tasks is not None:
                    watch.begin(self._tasks)
            self._watches[reference].holders.add(uid)

    def release(self, uid: str) -> None:
        self._told.pop(uid, None)
        for reference, watch in list(self._watches.items()):
            watch.holders.discard(uid)
            if not watch.holders:
                watch.end()
                del self._watches[reference]

    def known(self, reference: Reference) -> "Known | None":
        """What there is of an object now; None if that is not known, or not yet."""
        watch = self._watches.get(reference)
        return None if watch is None else watch.known

    def _watch(self, reference: Reference) -> "_Watch":
        watch = _Watch(lambda: self._tell(reference))
        watch.informer = Informer(
            self._client,
            objects(_RESOURCES[reference.plural]),
            watch,
            self._clock,
            namespace=reference.namespace,
            fields=f"metadata.name={reference.name}",
        )
        return watch

    def _tell(self, reference: Reference) -> None:
        watch = self._watches.get(reference)
        for uid in sorted(watch.holders) if watch is not None else ():
            self._told[uid](reference)


class Known(NamedTuple):
    """What a watch knows."""

    object: Source | None
    """None if there is no such object."""


class _Watch:
    """One object that is followed. Fulfils kedge.client.informer.Receiver."""

    informer: Informer[Source]

    def __init__(self, tell: Callable[[], None]) -> None:
        self.known: Known | None = None
        self.holders: set[str] = set()
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        if self._task is None:
            self._task = tasks.create_task(self.informer.run())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def replace(self, objects: Iterable[Source]) -> None:
        self._take(next(iter(objects), None))

    def put(self, obj: Source) -> None:
        self._take(obj)

    def remove(self, obj: Source) -> None:
        self._take(None)

    def _take(self, found: Source | None) -> None:
        self.known = Known(found)
        if found is not None and found.immutable:
            self.end()
        self._tell()
