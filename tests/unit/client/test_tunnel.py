"""Requests through proxies, well-behaved and hostile ones."""

import asyncio
from pathlib import Path

import pytest

from kedge.apiserver import pki
from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Unreachable
from kedge.client.tunnel import HEAD_BYTES, ProxyFailure
from kedge.machinery.proxies import ProxyAddress
from kedge.testing.proxy import FakeProxy, proxy
from kedge.testing.registry import registry

NAME = "registry.example"


def address(running: FakeProxy, **more: str) -> ProxyAddress:
    return ProxyAddress("http", "127.0.0.1", running.port, variable="HTTPS_PROXY", **more)


async def get(url: str, through: ProxyAddress, ca_pem: bytes = b"") -> int:
    transport = HttpTransport(url, ca_pem=ca_pem, proxy=through)
    try:
        return (await transport.send(Call("GET", "/v2/none"))).status
    finally:
        await transport.close()


async def test_a_tls_server_is_reached_by_connect(tmp_path: Path) -> None:
    async with registry(tmp_path, hosts=(NAME,)) as server, proxy() as running:
        running.hosts[f"{NAME}:443"] = int(server.host.rpartition(":")[2])
        transport = HttpTransport(f"https://{NAME}", ca_pem=server.ca_pem, proxy=address(running))
        for _ in range(2):
            assert (await transport.send(Call("GET", "/v2/none"))).status == 404
        await transport.close()
        assert server.asked == ["/v2/none", "/v2/none"]
        assert running.asked == [f"CONNECT {NAME}:443 HTTP/1.1"]


async def test_a_plain_server_is_reached_by_whole_requests() -> None:
    async with registry() as server, proxy() as running:
        running.hosts[f"{NAME}:5000"] = int(server.host.rpartition(":")[2])
        running.authorization = "Basic bWU6c2VjcmV0"
        through = address(running, username="me", password="secret")
        assert await get(f"http://{NAME}:5000", through) == 404
        assert running.asked == [f"GET http://{NAME}:5000/v2/none HTTP/1.1"]
        assert server.asked == ["/v2/none"]


async def test_the_proxy_itself_may_speak_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = pki.ensure(tmp_path / "proxy", ())
    (tmp_path / "ca.crt").write_bytes(identity.ca_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    async with (
        registry(tmp_path / "keys", hosts=(NAME,)) as server,
        proxy(identity.context) as running,
    ):
        running.hosts[f"{NAME}:443"] = int(server.host.rpartition(":")[2])
        through = ProxyAddress("https", "localhost", running.port)
        assert await get(f"https://{NAME}", through, server.ca_pem) == 404
        assert running.asked == [f"CONNECT {NAME}:443 HTTP/1.1"]


async def test_a_proxy_gets_its_own_credentials_and_no_others(tmp_path: Path) -> None:
    async with registry(tmp_path, hosts=(NAME,)) as server, proxy() as running:
        running.hosts[f"{NAME}:443"] = int(server.host.rpartition(":")[2])
        running.authorization = "Basic bWU6c2VjcmV0"
        through = address(running, username="me", password="secret")
        transport = HttpTransport(
            f"https://{NAME}", ca_pem=server.ca_pem, token="of-the-server", proxy=through
        )
        await transport.send(Call("GET", "/v2/none"))
        await transport.close()
        assert b"of-the-server" not in running.heads[0]
        assert server.seen == ["Bearer of-the-server"]
        for wrong in (address(running), address(running, username="me", password="x")):
            with pytest.raises(Unreachable, match=r"HTTPS_PROXY=http://USER:PASSWORD@127"):
                await get(f"https://{NAME}", wrong, server.ca_pem)


async def test_the_certificate_of_the_server_is_verified(tmp_path: Path) -> None:
    async with registry(tmp_path) as server, proxy() as running:
        running.hosts[f"{NAME}:443"] = int(server.host.rpartition(":")[2])
        with pytest.raises(Unreachable, match="Hostname mismatch"):
            await get(f"https://{NAME}", address(running), server.ca_pem)


async def test_a_proxy_that_is_not_there_is_named() -> None:
    there = ProxyAddress("http", "127.0.0.1", 1, variable="HTTPS_PROXY")
    for url in (f"https://{NAME}", f"http://{NAME}"):
        with pytest.raises(Unreachable, match=r"the proxy http://127.0.0.1:1 \(\$HTTPS_PROXY\) is"):
            await get(url, there)
    nowhere = ProxyAddress("http", "proxy.invalid", 1)
    with pytest.raises(Unreachable, match=r"the proxy http://proxy\.invalid:1 is not reachable"):
        await get(f"https://{NAME}", nowhere)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 403 No\r\n\r\n<html>", "403 (Forbidden)"),
        (b"HTTP/1.1 502 Bad\r\n\r\n", "502 (Bad Gateway)"),
        (b"HTTP/1.1 599 x\r\n\r\n", "599 (no reason)"),
        (b"HTTP/1.1 301 x\r\nLocation: http://127.0.0.1/\r\n\r\n", "301 (Moved Permanently)"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "100 (Continue)"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * HEAD_BYTES, "its answer is too long"),
        (b"x" * (HEAD_BYTES + 1), "its answer is too long"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "sends more than an answer"),
        (b"HTTP/1.1 200 OK\r\nx: y", "closes the connection"),
    ],
)
async def test_what_a_hostile_proxy_says_is_refused(answer: bytes, why: str) -> None:
    async with proxy() as running:
        running.answer = answer
        with pytest.raises(Unreachable) as refused:
            await get(f"https://{NAME}", address(running))
        assert why in str(refused.value)
        assert isinstance(refused.value.__cause__, ProxyFailure)


async def test_a_proxy_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedge.client.connection.TUNNEL_SECONDS", 0.05)
    clients: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: clients.append(writer), "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match=f"no answer in time .* the proxy .*:{port}"):
            await get(f"https://{NAME}", ProxyAddress("http", "127.0.0.1", port))
        for each in clients:
            each.close()
