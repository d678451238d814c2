"""Writes the results of type checks to the status of ValidatingAdmissionPolicies."""

import asyncio
import logging
from typing import Any

from kedge.apiserver.api import Api
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.pending_keys import PendingKeys
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.apiserver.watchcache import Change
from kedge.apiserver.webhooks.configuration import GROUP
from kedge.machinery.errors import StatusError
from kedge.web.message import HttpRequest

log = logging.getLogger(__name__)


class PolicyTypeChecks:
    """Checks each policy once per generation, one after the other."""

    def __init__(self, api: Api) -> None:
        resource = api.catalog.find(GROUP, "v1", "validatingadmissionpolicies")
        assert resource is not None
        self._api = api
        self._resource = resource
        self._cache = api.cache.of(resource)
        self._pending = PendingKeys()
        self._cache.listeners.add(self._note)
        for item in self._cache.values():
            self._pending.add(item.key)

    def _note(self, change: Change | None) -> None:
        if change is not None and change.type != "DELETED":
            self._pending.add(change.item.key)

    async def run(self) -> None:
        """Follow the policies, for ever."""
        while True:
            key = await self._pending.next()
            try:
                await self._check(key)
            except Exception:
                log.exception("admission policy not type checked key=%s", key)

    async def _check(self, key: str) -> None:
        item = self._cache.get(key)
        if item is None:
            return
        document = item.document()
        generation = document["metadata"].get("generation", 0)
        if (document.get("status") or {}).get("observedGeneration") == generation:
            return
        from kedge.apiserver.policies.type_checking import checked_kinds, expression_warnings

        spec = document.get("spec") or {}
        # The kinds are found here: definitions change the catalog while a thread works.
        kinds = checked_kinds(spec, self._api.catalog)
        found = await asyncio.to_thread(expression_warnings, spec, kinds)
        checked: dict[str, Any] = {"expressionWarnings": found} if found else {}
        status = {"observedGeneration": generation, "typeChecking": checked}
        name = key.rpartition("/")[2]
        request = Request(
            HttpRequest("PATCH", ""), ADMIN, self._resource, "patch", "", name, "status"
        )
        try:
            await write.modify(
                self._api,
                request,
                lambda live: DesiredDocument(
                    live | {"status": {**(live.get("status") or {}), **status}}
                ),
                write.STATUS,
                "UpdateOptions",
            )
        except StatusError as error:
            if error.code != 404:
                raise
