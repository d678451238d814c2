"""Allows anonymous reads of `cluster-info` only while a bootstrap token exists.

kubeadm always allows them. If no machine is about to join, anonymous clients need neither the
cluster's address nor its authority.
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
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import StatusError

NAMESPACE: Final = "kube-public"
NAME: Final = "kubeadm:bootstrap-signer-clusterinfo"
"""The name of the role and its binding, as in kubeadm."""
TOKENS: Final = "kube-system"
TYPE: Final = "bootstrap.kubernetes.io/token"


class TokenExpiration(msgspec.Struct, frozen=True, gc=False):
    """The expiration of a bootstrap token; nothing else of the token is kept."""

    metadata: Key
    ends: datetime | None
    """None if it does not expire."""


class ClusterInfoController:
    """Creates and deletes the binding for anonymous reads of the ConfigMap `cluster-info`."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: Cache[TokenExpiration] = Cache()
        self._informer = Informer(
            client,
            View(SECRETS, _token),
            self._tokens,
            clock,
            namespace=TOKENS,
            fields=f"type={TYPE}",
        )
        self._loop = ControllerLoop("cluster-info", self.reconcile, clock)

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


def seconds_left(tokens: Iterable[TokenExpiration], now: datetime) -> float | None:
    """Return the seconds until the last token expires; None if one does not expire."""
    ends = [token.ends for token in tokens]
    if None in ends:
        return None
    return max((end - now).total_seconds() for end in ends if end is not None)


def binding() -> RoleBinding:
    """Return the binding that allows anonymous reads of the ConfigMap."""
    return RoleBinding(
        metadata=ObjectMeta(name=NAME, namespace=NAMESPACE),
        roleRef=RoleRef(apiGroup=GROUP, kind="Role", name=NAME),
        subjects=[Subject(apiGroup=GROUP, kind="User", name="system:anonymous")],
    )


def _token(body: bytes) -> TokenExpiration:
    found = SECRETS.decode(body)
    return TokenExpiration(Key(found.metadata.namespace, found.metadata.name), ends_of(found))


def ends_of(secret: Secret) -> datetime | None:
    """Return when the token expires; an unreadable time has passed."""
    try:
        text = base64.b64decode(secret.data.get("expiration", ""), validate=True).decode()
        return parse_time(text) if text else None
    except (binascii.Error, ValueError):
        return datetime.min.replace(tzinfo=UTC)
