"""Checks of extension servers."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.apiserver.aggregation.test_availability import REMOTE

from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.probe import (
    _HASH,
    ApiServiceProbe,
    CheckFailed,
    ProbeAnswer,
)
from kedge.apiserver.aggregation.remote_version import RemoteVersion
from kedge.machinery.errors import StatusError
from kedge.web.exchange import OutgoingRequest, ServerAddress


async def test_a_service_without_a_server_fails_the_check() -> None:
    asked: list[str] = []

    def nowhere(namespace: str, name: str, port: int) -> tuple[str, int]:
        asked.append(name)
        raise StatusError(503, "ServiceUnavailable", f'no endpoints available for "{name}"')

    probe = ApiServiceProbe(ExtensionServers(nowhere, Path("/nonexistent")))
    with pytest.raises(CheckFailed, match='no endpoints available for "svc"'):
        await probe.check(REMOTE)
    assert len(asked) == 5


class AnsweringServers(ExtensionServers):
    """Extension servers that answer each path with a body."""

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        super().__init__(lambda *_: ("127.0.0.1", 1), Path("/nonexistent"))
        self._bodies = bodies

    def address(self, remote: RemoteVersion) -> ServerAddress:
        return ServerAddress("127.0.0.1", 1)

    async def ask(self, address: ServerAddress, request: OutgoingRequest) -> Any:
        body = self._bodies[request.target]

        async def whole(most: int) -> bytes:
            return body[:most]

        return SimpleNamespace(status=200, whole=whole)


@pytest.mark.parametrize("index", [b'{"x":' + b"[" * 100_000, b"[" * 2_000_000, b"\xff", b"{}"])
async def test_an_index_that_cannot_be_read_leaves_the_version_without_a_document(
    index: bytes,
) -> None:
    """One that is nested deeply ended the check, and the version kept its old condition."""
    servers = AnsweringServers({REMOTE.path: b"resources", "/openapi/v3": index})
    assert await ApiServiceProbe(servers).check(REMOTE) == ProbeAnswer(b"resources", "")


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("/openapi/v3/apis/g/v1?hash=AB12", "AB12"),
        ("/x?a=b&hash=AB&c=d", "AB"),
        ("/x", None),
        ("/x?hash=a%0d%0ab", None),
        ("/x?hash=" + "a" * 1000, None),
    ],
)
def test_only_plain_hashes_are_passed_on(url: str, wanted: str | None) -> None:
    found = _HASH.search(url)
    assert (found[1] if found else None) == wanted
