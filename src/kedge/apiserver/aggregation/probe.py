"""ApiServiceProbe: asks an extension server for the resources of its version, within limits of
time and size."""

import asyncio
import re
from typing import Final, NamedTuple

import msgspec

from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.front_proxy import user_headers
from kedge.apiserver.aggregation.remote_version import RemoteVersion
from kedge.apiserver.request import User
from kedge.machinery.errors import StatusError
from kedge.web import relay
from kedge.web.exchange import OutgoingRequest, ServerAddress

ATTEMPT_SECONDS: Final = 5.0
ATTEMPTS: Final = 4
"""Further attempts at once if the first fails: a Service may have bad and good endpoints."""
BODY_BYTES: Final = 1 << 20
"""Bytes of a list of resources, and of an OpenAPI index."""

_AGGREGATOR: Final = User("system:kube-aggregator", ("system:masters",))
"""Upstream's name. The group makes sure that the server answers."""
_HASH: Final = re.compile(r"[?&]hash=([0-9A-Za-z]{1,128})(?:&|$)")


class CheckFailed(Exception):
    """No endpoint answered as it should; the text is for the condition of the APIService."""


class ProbeAnswer(NamedTuple):
    """The answer of an extension server."""

    body: bytes
    """The resources of the version."""
    openapi_hash: str
    """The hash of its OpenAPI document; empty if it has none."""


class _IndexEntry(msgspec.Struct, rename={"url": "serverRelativeURL"}):
    url: str = ""


class _OpenApiIndex(msgspec.Struct):
    paths: dict[str, _IndexEntry] = {}


class ApiServiceProbe:
    """Checks extension servers."""

    def __init__(self, servers: ExtensionServers) -> None:
        self._servers = servers

    async def check(self, remote: RemoteVersion) -> ProbeAnswer:
        """Return the answer of any endpoint; raises CheckFailed if none answers."""
        try:
            return await self._attempt(remote)
        except CheckFailed:
            return await self._any(remote)

    async def _any(self, remote: RemoteVersion) -> ProbeAnswer:
        outcome: ProbeAnswer | CheckFailed = CheckFailed("")
        async with asyncio.TaskGroup() as tasks:
            attempts = [tasks.create_task(self._outcome(remote)) for _ in range(ATTEMPTS)]
            for done in asyncio.as_completed(attempts):
                outcome = await done
                if isinstance(outcome, ProbeAnswer):
                    break
            for attempt in attempts:
                attempt.cancel()
        if isinstance(outcome, CheckFailed):
            raise outcome
        return outcome

    async def _outcome(self, remote: RemoteVersion) -> ProbeAnswer | CheckFailed:
        try:
            return await self._attempt(remote)
        except CheckFailed as error:
            return error

    async def _attempt(self, remote: RemoteVersion) -> ProbeAnswer:
        try:
            address = self._servers.address(remote)
        except StatusError as error:
            raise CheckFailed(error.message) from None
        url = f"https://{address.authority}{remote.path}"
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                status, body = await self._get(address, remote, remote.path)
                if not 200 <= status < 300:
                    why = f"bad status from {url}: {status}"
                    raise CheckFailed(f"failing or missing response from {url}: {why}")
                return ProbeAnswer(body, await self._openapi_hash(address, remote))
        except TimeoutError:
            why = f'Get "{url}": context deadline exceeded'
        except OSError as error:
            why = f'Get "{url}": {relay.dial_failure(address, error)}'
        raise CheckFailed(f"failing or missing response from {url}: {why}")

    async def _openapi_hash(self, address: ServerAddress, remote: RemoteVersion) -> str:
        """Return the hash in the server's OpenAPI index. Servers without one are complete too."""
        try:
            status, body = await self._get(address, remote, "/openapi/v3")
            index = msgspec.json.decode(body, type=_OpenApiIndex) if status == 200 else None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
        entry = index.paths.get(remote.path[1:]) if index is not None else None
        found = _HASH.search(entry.url) if entry is not None else None
        return found[1] if found else ""

    async def _get(
        self, address: ServerAddress, remote: RemoteVersion, path: str
    ) -> tuple[int, bytes]:
        headers = [("accept", "application/json"), *user_headers(_AGGREGATOR)]
        asking = OutgoingRequest("GET", path, headers, host=remote.host)
        exchange = await self._servers.ask(address, asking)
        return exchange.status, await exchange.whole(BODY_BYTES)
