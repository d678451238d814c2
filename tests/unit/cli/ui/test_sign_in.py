"""`kedge ui`: how a browser gets to the dashboard."""

import stat
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.ui import sign_in
from kedge.client.discovery import Discovery
from kedge.client.login import Login
from kedge.testing.local_server import LocalServer


def session(local: LocalServer, **login: Any) -> ApiSession:
    found = Login(context="c", file=Path("f"), **{"server": "https://h:1", **login})
    return ApiSession(found, local.client, Discovery(local.client))


def test_the_code_is_in_the_fragment() -> None:
    assert sign_in.address("https://h:1/", "abc", "") == "https://h:1/ui/#code=abc"
    assert (
        sign_in.address("https://h:1", "abc", "a/b") == "https://h:1/ui/#code=abc&namespace=a%2Fb"
    )


async def test_the_address_has_a_code_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalServer.running() as server:
        assert await sign_in.open_page(session(server, namespace="shop"), None) == 0
        address = capsys.readouterr().out.strip()
        code = address.partition("#code=")[2].partition("&")[0]
        assert address == sign_in.address("https://h:1", code, "shop")
        headers = {"host": "h:1", "origin": "https://h:1"}
        answer = await server.call(
            "POST", "/ui/session", {"code": code}, token=None, headers=headers
        )
        assert answer.document["user"] == "kubernetes-admin"


async def test_without_tls_there_is_no_sign_in() -> None:
    async with LocalServer.running() as server:
        with pytest.raises(Failure, match="no TLS"):
            await sign_in.open_page(session(server, server="http://h:1"), None)


async def test_the_authority_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalServer.running() as server:
        assert await sign_in.print_authority(session(server, ca_pem=b"PEM\n")) == 0
        assert capsys.readouterr().out == "PEM\n"
        with pytest.raises(Failure, match="names no authority"):
            await sign_in.print_authority(session(server))


def test_browsers_get_the_code_from_a_private_file(tmp_path: Path) -> None:
    url = 'https://h:1/ui/#code=a&x="'
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    for _ in range(2):
        found = sign_in.through_file(url, environment)
    path = tmp_path / "kedge-ui.html"
    assert found == path.as_uri()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert 'url=https://h:1/ui/#code=a&amp;x=&quot;"' in path.read_text()
    assert sign_in.through_file(url, {}) == url
