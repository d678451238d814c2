"""Signs `cluster-info` with bootstrap tokens, and allows anonymous reads while one exists.

kubeadm always allows reads. If no machine is about to join, anonymous clients need neither the
cluster's address nor its authority. A machine that has a token compares the signature, so that a
server without the token cannot pretend to be the cluster.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from kedge.api.core_v1.config_map import RESOURCE as CONFIG_MAPS
from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.core_v1.secret import RESOURCE as SECRETS
from kedge.api.core_v1.secret import Secret
from kedge.api.model import ObjectMeta
from kedge.api.rbac_v1.role import GROUP
from kedge.api.rbac_v1.role_binding import RESOURCE as BINDINGS
from kedge.api.rbac_v1.role_binding import RoleBinding, RoleRef, Subject
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import View, objects
from kedge.controllers.loop import ControllerLoop
from kedge.machinery import detached_jws
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import StatusError

NAMESPACE: Final = "kube-public"
NAME: Final = "kubeadm:bootstrap-signer-clusterinfo"
"""The name of the role and its binding, as in kubeadm."""
TOKENS: Final = "kube-system"
TYPE: Final = "bootstrap.kubernetes.io/token"
INFO: Final = "cluster-info"
CONTENT: Final = "kubeconfig"
"""The key of the signed text."""
PREFIX: Final = "bootstrap-token-"
_WELL_FORMED: Final = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}").fullmatch
SIGNATURE: Final = "jws-kubeconfig-"
"""The beginning of the keys of signatures; the id of the token follows."""


class BootstrapToken(msgspec.Struct, frozen=True, gc=False):
    """A bootstrap token: how long it is valid, and its code if it is for signing."""

    metadata: Key
    ends: datetime | None
    """None if it does not expire."""
    id: str = ""
    secret: str = ""
    """Empty unless it is for signing."""

    def __repr__(self) -> str:
        return f"BootstrapToken({self.metadata.name})"


class ClusterInfoController:
    """Signs the ConfigMap `cluster-info`; creates and deletes the binding for anonymous reads."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: Cache[BootstrapToken] = Cache()
        self._informer = Informer(
            client,
            View(SECRETS, _token),
            self._tokens,
            clock,
            namespace=TOKENS,
            fields=f"type={TYPE}",
        )
        self._info: Cache[ConfigMap] = Cache()
        self._info_informer = Informer(
            client,
            objects(CONFIG_MAPS),
            self._info,
            clock,
            namespace=NAMESPACE,
            fields=f"metadata.name={INFO}",
        )
        self._loop = ControllerLoop("cluster-info", self.reconcile, clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            tasks.create_task(self._info_informer.run())
            await self._informer.synced.wait()
            await self._info_informer.synced.wait()
            self._tokens.listen(lambda key: self._loop.add(NAME))
            self._info.listen(lambda key: self._loop.add(NAME))
            self._loop.add(NAME)
            tasks.create_task(self._loop.run())

    async def reconcile(self, name: str) -> None:
        now = self._clock.now()
        usable = [token for token in self._tokens if token.ends is None or token.ends > now]
        # First: signatures that cannot be written must not keep strangers reading.
        if usable:
            await self._open()
            if (seconds := seconds_left(usable, now)) is not None:
                self._loop.add_later(name, seconds)
        else:
            await self._close()
        await self._sign(usable)

    async def _sign(self, usable: Iterable[BootstrapToken]) -> None:
        info = self._info.get(INFO, NAMESPACE)
        if info is None:
            return
        if changes := changed_signatures(info.data, usable):
            meta = {"resourceVersion": info.metadata.resourceVersion}
            patch = {"metadata": meta, "data": changes}
            await self._client.patch(CONFIG_MAPS, INFO, patch, NAMESPACE)

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


def changed_signatures(
    data: Mapping[str, str], tokens: Iterable[BootstrapToken]
) -> dict[str, str | None]:
    """Return the signatures that are missing or wrong, and None for those without a token."""
    content = data.get(CONTENT)
    wanted = {
        f"{SIGNATURE}{token.id}": detached_jws.signature(content, token.id, token.secret)
        for token in tokens
        if token.secret and content is not None
    }
    changes: dict[str, str | None] = {
        key: value for key, value in wanted.items() if data.get(key) != value
    }
    left = (key for key in data if key.startswith(SIGNATURE) and key not in wanted)
    return changes | dict.fromkeys(left)


def seconds_left(tokens: Iterable[BootstrapToken], now: datetime) -> float | None:
    """Return the seconds until the next token expires; None if none does."""
    ends = [token.ends for token in tokens if token.ends is not None]
    return min((end - now).total_seconds() for end in ends) if ends else None


def binding() -> RoleBinding:
    """Return the binding that allows anonymous reads of the ConfigMap."""
    return RoleBinding(
        metadata=ObjectMeta(name=NAME, namespace=NAMESPACE),
        roleRef=RoleRef(apiGroup=GROUP, kind="Role", name=NAME),
        subjects=[Subject(apiGroup=GROUP, kind="User", name="system:anonymous")],
    )


def _token(body: bytes) -> BootstrapToken:
    return token_of(SECRETS.decode(body))


def token_of(secret: Secret) -> BootstrapToken:
    """Return the token of a Secret; without its code if it is malformed or not for signing."""
    key = Key(secret.metadata.namespace, secret.metadata.name)
    token_id, code = _value(secret, "token-id"), _value(secret, "token-secret")
    signs = _value(secret, "usage-bootstrap-signing") == "true"
    if not signs or not _WELL_FORMED(f"{token_id}.{code}") or key.name != f"{PREFIX}{token_id}":
        return BootstrapToken(key, ends_of(secret))
    return BootstrapToken(key, ends_of(secret), token_id, code)


def _value(secret: Secret, key: str) -> str:
    """Return a value as text; empty if it is missing or no text."""
    try:
        return base64.b64decode(secret.data.get(key, ""), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def ends_of(secret: Secret) -> datetime | None:
    """Return when the token expires; an unreadable time has passed."""
    try:
        text = base64.b64decode(secret.data.get("expiration", ""), validate=True).decode()
        return parse_time(text) if text else None
    except (binascii.Error, ValueError):
        return datetime.min.replace(tzinfo=UTC)
