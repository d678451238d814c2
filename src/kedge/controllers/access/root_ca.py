"""Every active namespace has a ConfigMap with the CA certificate of the API server."""

import asyncio

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.config_map import RESOURCE, ConfigMap
from kedge.api.model import ObjectMeta
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import View
from kedge.controllers.loop import ControllerLoop
from kedge.controllers.namespaces import Namespaces, is_active, is_leaving
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

NAME = "kube-root-ca.crt"
KEY = "ca.crt"
DESCRIPTION_KEY = "kubernetes.io/description"
DESCRIPTION = (
    "The certificate authority of this cluster's API server. Pods use it to make sure that they "
    "speak to that server. Not meant for anything else."
)


class RootCaCopy(msgspec.Struct, frozen=True, gc=False):
    """The ConfigMap of one namespace, reduced to whether it is correct."""

    metadata: Key
    intact: bool


class RootCaController:
    """Creates the ConfigMap, and restores it after changes."""

    def __init__(self, client: Client, namespaces: Namespaces, ca_pem: bytes, clock: Clock) -> None:
        self._client = client
        self._namespaces = namespaces
        self._data = {KEY: ca_pem.decode()}
        self._copies: Cache[RootCaCopy] = Cache()
        view = View(RESOURCE, self._copy)
        self._informer = Informer(client, view, self._copies, clock, fields=f"metadata.name={NAME}")
        self._loop = ControllerLoop("root-ca", self.reconcile, clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            self._copies.listen(lambda key: self._loop.add(key.namespace))
            self._namespaces.listen(self._namespace_changed)
            for namespace in self._namespaces:
                self._loop.add(namespace.metadata.name)
            tasks.create_task(self._loop.run())

    def _namespace_changed(self, key: Key) -> None:
        self._loop.add(key.name)

    def _copy(self, body: bytes) -> RootCaCopy:
        found = RESOURCE.decode(body)
        key = Key(found.metadata.namespace, found.metadata.name)
        return RootCaCopy(key, intact=mended(found, self._data) == found)

    async def reconcile(self, namespace: str) -> None:
        copy = self._copies.get(NAME, namespace)
        if not is_active(self._namespaces, namespace) or (copy is not None and copy.intact):
            return
        try:
            if copy is None:
                await self._client.create(RESOURCE, published(namespace, self._data))
            else:
                await self._mend(namespace)
        except StatusError as error:
            # Whatever took the place of the one expected here will show up in the cache.
            if error.reason != "AlreadyExists" and error.code != 404 and not is_leaving(error):
                raise

    async def _mend(self, namespace: str) -> None:
        found = await self._client.get(RESOURCE, NAME, namespace)
        await self._client.update(RESOURCE, mended(found, self._data))


def published(namespace: str, data: dict[str, str]) -> ConfigMap:
    """The ConfigMap as it should be."""
    meta = ObjectMeta(name=NAME, namespace=namespace, annotations={DESCRIPTION_KEY: DESCRIPTION})
    return ConfigMap(metadata=meta, data=data)


def mended(found: ConfigMap, data: dict[str, str]) -> ConfigMap:
    """The ConfigMap with its data and a description; labels and the like are left to others."""
    annotations = dict(found.metadata.annotations)
    annotations[DESCRIPTION_KEY] = annotations.get(DESCRIPTION_KEY) or DESCRIPTION
    return replace(found, data=data, metadata=replace(found.metadata, annotations=annotations))
