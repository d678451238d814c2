"""Deletes the Secrets of bootstrap tokens that have expired, as kube-controller-manager does."""

import asyncio
from datetime import datetime

import msgspec

from kedge.api.core_v1.secret import RESOURCE as SECRETS
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import View
from kedge.controllers.access.cluster_info import TOKENS, TYPE, ends_of
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError


class BootstrapTokenSecret(msgspec.Struct, frozen=True, gc=False):
    """A Secret with a bootstrap token; nothing else of it is kept."""

    metadata: Key
    uid: str
    ends: datetime | None
    """None if it does not expire."""


class BootstrapTokenCleaner:
    """Deletes each Secret when its token expires."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: Cache[BootstrapTokenSecret] = Cache()
        self._informer = Informer(
            client,
            View(SECRETS, token_of),
            self._tokens,
            clock,
            namespace=TOKENS,
            fields=f"type={TYPE}",
        )
        self._loop = ControllerLoop("bootstrap-token-cleaner", self.reconcile, clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            self._tokens.listen(lambda key: self._loop.add(key.name))
            for token in self._tokens:
                self._loop.add(token.metadata.name)
            tasks.create_task(self._loop.run())

    async def reconcile(self, name: str) -> None:
        """Delete the Secret of that name, or come back when its token expires."""
        token = self._tokens.get(name, TOKENS)
        if token is None or token.ends is None:
            return
        seconds = (token.ends - self._clock.now()).total_seconds()
        if seconds > 0:
            self._loop.add_later(name, seconds)
            return
        try:
            # By uid: a token of the same name that was created since stays.
            options = DeletionOptions(preconditions=DeletionPreconditions(uid=token.uid))
            await self._client.delete(SECRETS, name, TOKENS, options=options)
        except StatusError as error:
            if error.code not in (404, 409):
                raise


def token_of(body: bytes) -> BootstrapTokenSecret:
    """Return the token of a Secret."""
    found = SECRETS.decode(body)
    key = Key(found.metadata.namespace, found.metadata.name)
    return BootstrapTokenSecret(key, found.metadata.uid, ends_of(found))
