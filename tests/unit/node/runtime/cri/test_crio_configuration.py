import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kedge.node.runtime.cri.cni_plugin import CniDirectories
from kedge.node.runtime.cri.crio_configuration import directories, network_directories
from kedge.node.runtime.runtime import RuntimeFailure

# A part of what CRI-O 1.36.3 answers.
CONFIGURATION = """\
[crio]
  root = "/var/lib/containers/storage"
  [crio.api]
    listen = "/var/run/crio/crio.sock"
  [crio.runtime]
    hooks_dir = ["/usr/share/containers/oci/hooks.d"]
    cgroup_manager = "cgroupfs"
  [crio.network]
    cni_default_network = ""
    network_dir = "/srv/net.d"
    plugin_dirs = ["/srv/bin", "/opt/cni/bin/"]
    cni_status_grace_period = "0s"
"""
EXPECTED = CniDirectories(Path("/srv/net.d"), Path("/srv/bin"))


@asynccontextmanager
async def serving(place: Path, answer: bytes) -> AsyncIterator[Path]:
    """A socket where every request gets this answer."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        assert asked.startswith(b"GET /config HTTP/1.1\r\n")
        writer.write(answer)
        writer.close()

    socket = place / "crio.sock"
    server = await asyncio.start_unix_server(handle, socket)
    try:
        yield socket
    finally:
        server.close()


def chunked(text: str) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/toml\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text.encode())


async def test_the_directories_are_read_at_the_socket(tmp_path: Path) -> None:
    async with serving(tmp_path, chunked(CONFIGURATION)) as socket:
        assert await network_directories(socket) == EXPECTED


def test_what_is_not_configured_is_the_usual() -> None:
    for text in ("", "[crio]\n", '[crio.network]\nnetwork_dir = ""\nplugin_dirs = []\n'):
        assert directories(text) == CniDirectories()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status 404"),
        (chunked("[crio"), "Expected ']'"),
        (chunked("crio = 1"), "no table"),
        (chunked("[crio]\nnetwork = 1"), "no table"),
        (b"", "cannot read the configuration of CRI-O"),
    ],
)
async def test_an_answer_that_is_no_configuration_is_refused(
    tmp_path: Path, answer: bytes, reason: str
) -> None:
    async with serving(tmp_path, answer) as socket:
        with pytest.raises(RuntimeFailure, match=reason):
            await network_directories(socket)


async def test_a_socket_without_a_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match="cannot read the configuration of CRI-O"):
        await network_directories(tmp_path / "nothing")
