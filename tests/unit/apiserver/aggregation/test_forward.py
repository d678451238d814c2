"""What is forwarded, and what is refused before."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.apiserver.aggregation.test_availability import REMOTE

from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.forward import check_path, forward
from kedge.apiserver.request import User
from kedge.machinery.errors import StatusError
from kedge.web.message import HttpRequest


@pytest.mark.parametrize("path", ["/apis/g/v1", "/apis/g/v1/", "/apis/g/v1/x/a:b%20c", "/a/..b"])
def test_ordinary_paths_pass(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "//apis/g",
        "/apis//g",
        "/apis/g/..",
        "/apis/./g",
        "/a/%2e%2E/b",
        "/a/b%2fc",
        "/a/%00",
        "/a//",
    ],
)
def test_paths_that_servers_read_differently_are_refused(path: str) -> None:
    with pytest.raises(StatusError) as error:
        check_path(path)
    assert error.value.code == 400


def nowhere(namespace: str, name: str, port: int) -> tuple[str, int]:
    raise StatusError(503, "ServiceUnavailable", "no endpoints")


async def answer(available: bool, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    from msgspec.structs import replace

    servers = ExtensionServers(nowhere, Path("/nonexistent"))
    http = HttpRequest("GET", "/apis/g/v1/x", headers=headers or {})
    response = await forward(servers, replace(REMOTE, is_available=available), http, User("ann"))
    assert isinstance(response.body, bytes)
    return response.status, response.body


async def test_a_version_that_is_not_available_is_not_asked() -> None:
    assert await answer(available=False) == (503, b"service unavailable\n")


async def test_a_service_without_endpoints_is_unavailable() -> None:
    assert await answer(available=True) == (503, b"service unavailable\n")
