"""Strangers may read where the cluster is while a bootstrap token exists, and at no other time.

kubeadm lets everybody read it for ever. A cluster that no machine is to join has nothing to tell to
who has not shown a credential: neither that it is there, nor its address and its authority.
"""

import asyncio
import base64
import binascii
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from kedge.api.core_v1.secret import RESOURCE as SECRETS
from kedge.api.core_v1.secret import Secret
from kedge.api.model import ObjectMeta
from kedge.api.rbac_v1.role import GROUP
from kedge.api.rbac_v1.role_binding import RESOURCE as BINDINGS
from kedge.api.rbac_v1.role_binding import RoleBinding, RoleRef, Subject
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import View
from kedge.controllers.loop import Loop
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import StatusError

NAMESPACE: Final = "kube-public"
NAME: Final = "kubeadm:bootstrap-signer-clusterinfo"
"""What both the role and its binding are called, as kubeadm has it."""
TOKENS: Final = "kube-system"
TYPE: Final = "bootstrap.kubernetes.io/token"


class TokenTime(msgspec.Struct, frozen=True, gc=False):
    """A bootstrap token: all that is kept of it is until when it can be used."""

    metadata: Key
    ends: datetime | None
    """None if it can be used for ever."""


class ClusterInfoController:
    """Makes the binding that lets strangers read the ConfigMap `cluster-info`, and removes it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: Cache[TokenTime] = Cache()
        self._informer = Informer(
            client,
            View(SECRETS, _token),
            self._tokens,
            clock,
            namespace=TOKENS,
            fields=f"type={TYPE}",
        )
        self._loop = Loop("cluster-info", self.reconcile, clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            self._tokens.listen(lambda key: self._loop.add(NAME))
            self._loop.add(NAME)
            tasks.create_task(self._loop.run())

    async def reconcile(self, name: str) -> None:
        now = self._clock.now()
        usable = [token for token in self._tokens if token.ends is None or token.ends > now]
        if usable:
            await self._open()
            if (seconds := seconds_left(usable, now)) is not None:
                self._loop.add_later(name, seconds)
        else:
            await self._close()

    async def _open(self) -> None:
        try:
            await self._client.create(BINDINGS, binding())
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise

    async def _close(self) -> None:
        try:
            await self._client.delete(BINDINGS, NAME, NAMESPACE)
        except StatusError as error:
            if error.code != 404:
                raise


def seconds_left(tokens: Iterable[TokenTime], now: datetime) -> float | None:
    """How long the last of the tokens can be used; None if one can for ever."""
    ends = [token.ends for token in tokens]
    if None in ends:
        return None
    return max((end - now).total_seconds() for end in ends if end is not None)


def binding() -> RoleBinding:
    """What lets everybody read the ConfigMap."""
    return RoleBinding(
        metadata=ObjectMeta(name=NAME, namespace=NAMESPACE),
        roleRef=RoleRef(apiGroup=GROUP, kind="Role", name=NAME),
        subjects=[Subject(apiGroup=GROUP, kind="User", name="system:anonymous")],
    )


def _token(body: bytes) -> TokenTime:
    found = SECRETS.decode(body)
    return TokenTime(Key(found.metadata.namespace, found.metadata.name), ends_of(found))


def ends_of(secret: Secret) -> datetime | None:
    """Until when the token can be used; a time that cannot be read is over."""
    try:
        text = base64.b64decode(secret.data.get("expiration", ""), validate=True).decode()
        return parse_time(text) if text else None
    except (binascii.Error, ValueError):
        return datetime.min.replace(tzinfo=UTC)
