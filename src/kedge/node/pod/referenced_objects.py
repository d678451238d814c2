"""API objects that the pods of this node reference: config maps, secrets, services and tokens.

The node authorizer permits a node to read only the objects that its pods reference, each by name.
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

ConfigObject = ConfigMap | Secret
_RESOURCES: Final[dict[str, Resource[Any]]] = {
    each.plural: each for each in (config_map.RESOURCE, secret.RESOURCE)
}
_LIFETIME_SECONDS: Final = 3600
"""Default lifetime of a token, in seconds."""
_DAY_SECONDS: Final = 86400


class ConfigObjectKey(NamedTuple):
    """The key of a config map or a secret."""

    plural: str
    namespace: str
    name: str


class ServiceAccountToken(NamedTuple):
    """A token of a pod's service account."""

    text: str
    issued: datetime
    expires: datetime

    def is_old(self, now: datetime) -> bool:
        """Return whether the token must be replaced: after 80 % of its lifetime or a day, as in the
        kubelet."""
        age, life = now - self.issued, self.expires - self.issued
        return age >= life * 0.8 or age.total_seconds() > _DAY_SECONDS


class ReferencedObjects:
    """Reads objects through the API, with the rights of the node."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._services: Cache[Service] = Cache()
        self._informer = Informer(client, objects(service.RESOURCE), self._services, clock)

    async def run(self) -> None:
        """Watch the services until cancelled."""
        await self._informer.run()

    async def find(self, reference: ConfigObjectKey) -> ConfigObject | None:
        """Return the current config map or secret; None if it does not exist."""
        found: ConfigObject | None = await self._get(
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
        """Return all services, after the first list has arrived."""
        await self._informer.synced.wait()
        return self._services

    async def token(self, pod: Pod, audience: str, seconds: int | None) -> ServiceAccountToken:
        """Request a token for the pod's service account. It is bound to the pod: the API server
        rejects it once the pod is deleted."""
        spec: dict[str, Any] = {
            "expirationSeconds": seconds or _LIFETIME_SECONDS,
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
        return ServiceAccountToken(status["token"], self._clock.now(), expires)


ChangeHandler = Callable[[ConfigObjectKey], None]


class ConfigObjectWatches:
    """Watches the config maps and secrets in volumes, so that the volumes are updated.

    The watch of an immutable object ends with its first version, as in the kubelet.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tasks: asyncio.TaskGroup | None = None
        self._watches: dict[ConfigObjectKey, _ConfigObjectWatch] = {}
        self._handlers: dict[str, ChangeHandler] = {}

    async def run(self) -> None:
        """Run the watches until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for watch in self._watches.values():
                watch.start(self._tasks)
            await asyncio.get_running_loop().create_future()

    def hold(self, uid: str, references: Iterable[ConfigObjectKey], change: ChangeHandler) -> None:
        """Watch these objects for a pod until `release`; `change` is called for each change."""
        self._handlers[uid] = change
        for reference in references:
            if reference not in self._watches:
                self._watches[reference] = watch = self._watch(reference)
                if self._tasks is not None:
                    watch.start(self._tasks)
            self._watches[reference].holders.add(uid)

    def release(self, uid: str) -> None:
        self._handlers.pop(uid, None)
        for reference, watch in list(self._watches.items()):
            watch.holders.discard(uid)
            if not watch.holders:
                watch.end()
                del self._watches[reference]

    def watched(self, reference: ConfigObjectKey) -> "WatchedConfigObject | None":
        """Return the latest version of a watched object; None if it is not watched or not yet
        listed."""
        watch = self._watches.get(reference)
        return None if watch is None else watch.latest

    def _watch(self, reference: ConfigObjectKey) -> "_ConfigObjectWatch":
        watch = _ConfigObjectWatch(lambda: self._notify(reference))
        watch.informer = Informer(
            self._client,
            objects(_RESOURCES[reference.plural]),
            watch,
            self._clock,
            namespace=reference.namespace,
            fields=f"metadata.name={reference.name}",
        )
        return watch

    def _notify(self, reference: ConfigObjectKey) -> None:
        watch = self._watches.get(reference)
        for uid in sorted(watch.holders) if watch is not None else ():
            self._handlers[uid](reference)


class WatchedConfigObject(NamedTuple):
    """The latest version of a watched object."""

    object: ConfigObject | None
    """None if the object does not exist."""


class _ConfigObjectWatch:
    """The watch of one object. Fulfils kedge.client.informer.Receiver."""

    informer: Informer[ConfigObject]

    def __init__(self, notify: Callable[[], None]) -> None:
        self.latest: WatchedConfigObject | None = None
        self.holders: set[str] = set()
        self._notify = notify
        self._task: asyncio.Task[None] | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        if self._task is None:
            self._task = tasks.create_task(self.informer.run())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def replace(self, objects: Iterable[ConfigObject]) -> None:
        self._update(next(iter(objects), None))

    def put(self, obj: ConfigObject) -> None:
        self._update(obj)

    def remove(self, obj: ConfigObject) -> None:
        self._update(None)

    def _update(self, found: ConfigObject | None) -> None:
        self.latest = WatchedConfigObject(found)
        if found is not None and found.immutable:
            self.end()
        self._notify()
