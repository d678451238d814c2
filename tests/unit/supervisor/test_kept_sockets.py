import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor import wire
from kedge.supervisor.kept_sockets import MOST_NAMES, KeptSockets
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.server import AgentListener
from kedge.testing import descriptors


class Site:
    """A listener that keeps sockets, and agents one after the other."""

    def __init__(self, directory: Path, loop: EventLoop) -> None:
        self.loop = loop
        self._path = str(directory / wire.SOCKET)
        handlers = KeptSockets().handlers()
        self.listener = AgentListener(
            str(directory), loop, handlers, left=lambda connection: loop.stop()
        )
        self.agent = self._connect()

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.settimeout(20)
        made.connect(self._path)
        return made

    def leave(self) -> None:
        """The agent ends."""
        self.agent.close()
        self.loop.run()

    def restart(self) -> None:
        """Another agent takes the place of the one that ended."""
        self.leave()
        self.agent = self._connect()

    def ask(self, do: str, name: str = "dns", *sent: socket.socket) -> tuple[Any, list[int]]:
        numbers = [each.fileno() for each in sent]
        wire.post(self.agent, *wire.packet({"id": 1, "do": do, "name": name}, numbers))
        self.loop.on(self.agent.fileno(), 1, self.loop.stop)
        self.loop.run()
        self.loop.off(self.agent.fileno())
        return wire.take(self.agent)


@pytest.fixture
def site(tmp_path: Path, event_loop: EventLoop) -> Iterator[Site]:
    made = Site(tmp_path, event_loop)
    yield made
    made.leave()
    made.listener.close()


def bound() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    return made


def test_a_socket_outlives_its_agent(site: Site) -> None:
    own = bound()
    address = own.getsockname()
    site.ask("keep_sockets", "dns", own)
    own.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"query", address)
    site.restart()
    _, [descriptor] = site.ask("kept_sockets")
    with socket.socket(fileno=descriptor) as taken:
        assert taken.getsockname() == address
        assert taken.recv(100) == b"query"


def test_sockets_are_replaced_and_released(site: Site) -> None:
    site.ask("keep_sockets")
    inodes = []
    for _ in range(3):
        with bound() as own:
            site.ask("keep_sockets", "dns", own)
            inodes.append(os.fstat(own.fileno()).st_ino)
    assert [descriptors.copies_of(each) for each in inodes] == [0, 0, 1]
    site.ask("keep_sockets")
    assert descriptors.copies_of(inodes[-1]) == 0
    assert site.ask("kept_sockets")[1] == []


def test_the_number_of_names_is_limited(site: Site) -> None:
    with bound() as own:
        for number in range(MOST_NAMES):
            site.ask("keep_sockets", str(number), own)
        answer, _ = site.ask("keep_sockets", "more", own)
        assert "16 names" in answer["error"]
        answer, _ = site.ask("keep_sockets", "0", own)
        assert "error" not in answer
    for number in range(MOST_NAMES):
        site.ask("keep_sockets", str(number))
