"""Checks of extension servers."""

from pathlib import Path

import pytest
from tests.unit.apiserver.aggregation.test_availability import REMOTE

from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.probe import _HASH, ApiServiceProbe, CheckFailed
from kedge.machinery.errors import StatusError


async def test_a_service_without_a_server_fails_the_check() -> None:
    asked: list[str] = []

    def nowhere(namespace: str, name: str, port: int) -> tuple[str, int]:
        asked.append(name)
        raise StatusError(503, "ServiceUnavailable", f'no endpoints available for "{name}"')

    probe = ApiServiceProbe(ExtensionServers(nowhere, Path("/nonexistent")))
    with pytest.raises(CheckFailed, match='no endpoints available for "svc"'):
        await probe.check(REMOTE)
    assert len(asked) == 5


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
