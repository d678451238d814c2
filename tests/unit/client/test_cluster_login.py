"""Who a server beside a cluster is to that cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kedge.client.cluster_login import ClusterCredentials, TokenTransport, in_cluster
from kedge.client.kubeconfig import KubeconfigError
from kedge.client.transport import Call, Reply, Stream
from kedge.testing.clock import FakeClock

INSIDE = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What a pod finds of itself."""
    (tmp_path / "ca.crt").write_text("PEM")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def test_a_pod_finds_its_cluster(home: Path) -> None:
    found = in_cluster(INSIDE, home)
    assert (found.server, found.token, found.ca_pem) == ("https://[fd00::1]:6443", "first", b"PEM")


def test_outside_of_a_cluster_a_kubeconfig_is_asked_for(home: Path, tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="--kubeconfig"):
        in_cluster({}, home)
    with pytest.raises(KubeconfigError, match=r"ca\.crt"):
        in_cluster(INSIDE, tmp_path / "nowhere")


async def test_a_token_that_was_renewed_is_taken_over(home: Path) -> None:
    clock = FakeClock()
    held = ClusterCredentials(lambda: in_cluster(INSIDE, home), clock)
    (home / "token").write_text("second")
    assert held.login.token == "first"
    await clock.advance(61)
    assert held.login.token == "second"
    (home / "token").unlink()
    await clock.advance(61)
    assert held.login.token == "second"


class Refusing:
    """A server that knows the second token only."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def send(self, call: Call) -> Reply:
        self.seen.append(call.headers["authorization"])
        return Reply(200 if self.seen[-1] == "Bearer second" else 401, {}, b"")

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async def pieces() -> AsyncIterator[bytes]:
            yield b""

        reply = await self.send(call)
        yield Stream(reply.status, {}, pieces())

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("is_stream", [True, False])
async def test_after_a_refusal_the_token_is_read_again(home: Path, is_stream: bool) -> None:
    server = Refusing()
    held = ClusterCredentials(lambda: in_cluster(INSIDE, home), FakeClock())
    transport = TokenTransport(held, server)

    async def status() -> int:
        if not is_stream:
            return (await transport.send(Call("GET", "/"))).status
        async with transport.stream(Call("GET", "/")) as stream:
            return stream.status

    (home / "token").write_text("second")
    assert [await status(), await status(), await status()] == [401, 200, 200]
    assert server.seen == ["Bearer first", "Bearer second", "Bearer second"]
