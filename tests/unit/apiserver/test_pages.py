"""Pages outside of the API groups."""

import pytest

from kedge import KUBERNETES
from kedge.apiserver.pages import version_info
from kedge.testing.local_server import LocalServer


async def test_the_root_lists_the_pages_and_the_groups(server: LocalServer) -> None:
    paths = (await server.get("/"))["paths"]
    assert paths == sorted(paths)
    assert {"/api", "/api/v1", "/apis", "/apis/apps/v1", "/version"} <= set(paths)
    assert {"/healthz", "/livez", "/readyz", "/metrics", "/openapi/v2"} <= set(paths)


@pytest.mark.parametrize("path", ["/version", "/metrics", "/", "/openapi/v2", "/readyz"])
async def test_pages_can_only_be_read(server: LocalServer, path: str) -> None:
    assert (await server.call("GET", path)).status == 200
    assert (await server.call("HEAD", path)).status == 200
    assert (await server.call("PUT", path)).status == 405


def test_the_version_names_the_release_of_kubernetes() -> None:
    info = version_info()
    assert info["gitVersion"] == f"v{KUBERNETES}+kedge"
    assert KUBERNETES.startswith(f"{info['major']}.{info['minor']}.")
    assert int(info["minCompatibilityMinor"]) == int(info["minor"]) - 1
