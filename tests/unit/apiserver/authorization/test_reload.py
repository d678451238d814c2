"""The file with authorizers is followed: a good change counts, a bad one changes nothing."""

import os
from pathlib import Path

import msgspec
import pytest

from kedge.apiserver.authorization.reload import ConfiguredAuthorizers
from kedge.apiserver.configuration_file import ConfigurationFileError
from kedge.testing.local_server import LocalServer

JANE = {"impersonate-user": "jane"}
HEAD = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}


def write(path: Path, *types: str) -> None:
    authorizers = [{"type": each, "name": each.lower()} for each in types]
    other = path.with_suffix(".new")
    other.write_bytes(msgspec.json.encode(HEAD | {"authorizers": authorizers}))
    os.replace(other, path)


async def status(server: LocalServer, path: str = "/api/v1/pods") -> int:
    return (await server.call("GET", path, headers=JANE)).status


async def test_changes_of_the_file_count_unless_they_are_invalid(
    server: LocalServer, tmp_path: Path
) -> None:
    path = tmp_path / "authorization.json"
    write(path, "Node", "RBAC")
    authorizers = ConfiguredAuthorizers(path, server.app.api.authorizer, server.clock)
    assert await status(server) == 403
    write(path, "Node", "RBAC", "AlwaysAllow")
    assert await authorizers._replace()
    assert await status(server) == 200
    write(path, "Node", "Unknown")
    assert await authorizers._replace()
    write(path, "Node", "AlwaysDeny")
    assert await authorizers._replace()
    assert await status(server) == 200
    write(path, "RBAC", "Node")
    assert await authorizers._replace()
    assert await status(server) == 403
    assert authorizers.log.counts == {"success": 2, "failure": 2}
    await authorizers.close()


async def test_an_invalid_file_prevents_the_start(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "authorization.json"
    write(path)
    with pytest.raises(ConfigurationFileError, match="at least one authorization mode"):
        ConfiguredAuthorizers(path, server.app.api.authorizer, server.clock)


async def test_only_the_health_itself_needs_no_right(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "authorization.json"
    write(path, "AlwaysDeny")
    ConfiguredAuthorizers(path, server.app.api.authorizer, server.clock)
    assert await status(server, "/livez") == 200
    assert await status(server, "/livez/ping") == 403
    assert await status(server, "/livezother") == 403
