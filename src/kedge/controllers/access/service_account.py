"""Every active namespace has a ServiceAccount named default."""

import asyncio

from kedge.api.core_v1.service_account import RESOURCE, ServiceAccount
from kedge.api.model import ObjectMeta
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import Outline, outlines
from kedge.controllers.loop import ControllerLoop
from kedge.controllers.namespaces import Namespaces, is_active, is_leaving
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

NAME = "default"


class ServiceAccountController:
    """Creates the account, and creates it again after a deletion."""

    def __init__(self, client: Client, namespaces: Namespaces, clock: Clock) -> None:
        self._client = client
        self._namespaces = namespaces
        self._accounts: Cache[Outline] = Cache()
        self._informer = Informer(
            client, outlines(RESOURCE), self._accounts, clock, fields=f"metadata.name={NAME}"
        )
        self._loop = ControllerLoop("service-account", self.reconcile, clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            self._accounts.listen(lambda key: self._loop.add(key.namespace))
            self._namespaces.listen(self._namespace_changed)
            for namespace in self._namespaces:
                self._loop.add(namespace.metadata.name)
            tasks.create_task(self._loop.run())

    def _namespace_changed(self, key: Key) -> None:
        self._loop.add(key.name)

    async def reconcile(self, namespace: str) -> None:
        if not is_active(self._namespaces, namespace) or self._accounts.get(NAME, namespace):
            return
        account = ServiceAccount(metadata=ObjectMeta(name=NAME, namespace=namespace))
        try:
            await self._client.create(RESOURCE, account)
        except StatusError as error:
            if error.reason != "AlreadyExists" and not is_leaving(error):
                raise
