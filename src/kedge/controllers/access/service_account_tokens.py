"""Secrets of the type service-account-token get their data: token, ca.crt and namespace."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from kedge.api.core_v1 import secret, service_account
from kedge.api.core_v1.secret import SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN, Secret
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import Outline, objects, outlines
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

SERVICE_ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"

Sign = Callable[[Mapping[str, Any]], str]
"""Signs a token with these claims, using the cluster's key."""


class ServiceAccountTokenController:
    """Fills in these Secrets, and deletes those whose service account is gone."""

    def __init__(self, client: Client, sign: Sign, ca_pem: bytes, clock: Clock) -> None:
        self._client = client
        self._sign = sign
        self._ca = base64.b64encode(ca_pem).decode()
        self._secrets: Cache[Secret] = Cache()
        self._accounts: Cache[Outline] = Cache()
        self._informers = (
            Informer(
                client,
                objects(secret.RESOURCE),
                self._secrets,
                clock,
                fields=f"type={SERVICE_ACCOUNT_TOKEN}",
            ),
            Informer(client, outlines(service_account.RESOURCE), self._accounts, clock),
        )
        self._loop = ControllerLoop("service-account-token", self.reconcile, clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())
            for informer in self._informers:
                await informer.synced.wait()
            self._secrets.listen(self._loop.add)
            self._accounts.listen(self._account_changed)
            for kept in self._secrets:
                self._loop.add(Key(kept.metadata.namespace, kept.metadata.name))
            tasks.create_task(self._loop.run())

    def _account_changed(self, key: Key) -> None:
        for kept in self._secrets:
            if kept.metadata.namespace == key.namespace and account_of(kept) == key.name:
                self._loop.add(Key(kept.metadata.namespace, kept.metadata.name))

    async def reconcile(self, key: Key) -> None:
        kept = self._secrets.get(key.name, key.namespace)
        if kept is None or kept.metadata.deletionTimestamp:
            return
        uid = await self._account_uid(kept)
        if uid is None:
            await self._delete(kept)
            return
        filled = self._filled(kept, uid)
        if filled == kept:
            return
        try:
            await self._client.update(secret.RESOURCE, filled)
        except StatusError as error:
            # Another writer was faster; its write will reach the cache.
            if error.code != 404 and error.reason != "Conflict":
                raise

    async def _account_uid(self, kept: Secret) -> str | None:
        """The uid of the account that the Secret is for, None if there is no such account."""
        wanted = kept.metadata.annotations.get(SERVICE_ACCOUNT_UID, "")
        known = self._accounts.get(account_of(kept), kept.metadata.namespace)
        uid = known.metadata.uid if known is not None else await self._ask_uid(kept)
        return uid if uid and wanted in ("", uid) else None

    async def _ask_uid(self, kept: Secret) -> str:
        """The account may be newer than what the informer has seen of accounts."""
        view = outlines(service_account.RESOURCE)
        try:
            found = await self._client.get_as(view, account_of(kept), kept.metadata.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return ""
        return found.metadata.uid

    async def _delete(self, kept: Secret) -> None:
        meta = kept.metadata
        options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
        try:
            await self._client.delete(secret.RESOURCE, meta.name, meta.namespace, options=options)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    def _filled(self, kept: Secret, uid: str) -> Secret:
        data = dict(kept.data)
        data["ca.crt"] = self._ca
        if not data.get("namespace"):
            data["namespace"] = _encoded(kept.metadata.namespace)
        if not data.get("token"):
            data["token"] = _encoded(self._sign(claims(kept, uid)))
        if data == kept.data:
            return kept
        named = {SERVICE_ACCOUNT_NAME: account_of(kept), SERVICE_ACCOUNT_UID: uid}
        meta = replace(kept.metadata, annotations={**kept.metadata.annotations, **named})
        return replace(kept, metadata=meta, data=data)


def account_of(kept: Secret) -> str:
    """The name of the account that a Secret is for."""
    return kept.metadata.annotations.get(SERVICE_ACCOUNT_NAME, "")


def claims(kept: Secret, uid: str) -> dict[str, str]:
    """Return the claims of the token in a Secret: it does not expire, but ends with the Secret."""
    namespace, name = kept.metadata.namespace, account_of(kept)
    return {
        "iss": "kubernetes/serviceaccount",
        "sub": f"system:serviceaccount:{namespace}:{name}",
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": kept.metadata.name,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
