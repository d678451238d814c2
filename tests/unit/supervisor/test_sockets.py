"""Sockets that a supervisor makes for another process."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor import sockets, wire
from kedge.supervisor.sockets import SupervisorSockets

Answer = Callable[[dict[str, Any]], tuple[dict[str, Any], list[int]]]


class FakeSupervisor:
    """Answers requests at the socket of a directory until it is closed."""

    def __init__(self, directory: Path, answer: Answer) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / wire.SOCKET
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = os.open(directory, os.O_PATH)
        # The path itself may be longer than an address.
        self._listener.bind(wire.address(here))
        os.close(here)
        self._listener.listen()
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        while True:
            try:
                message, _ = wire.take(connection)
            except (wire.PeerClosed, OSError):
                return
            answer, descriptors = self._answer(message)
            wire.post(connection, *wire.packet({"id": message["id"], **answer}, descriptors))

    def end(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._connections:
            each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._path.unlink()


def made(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    kind = message["family"], message["kind"], message["protocol"]
    return {"result": {}}, [socket.socket(*kind).detach()]


def refused(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    return {"error": f"not {message['do']}", "kind": "failure"}, []


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return tmp_path / "nodes" / "node-1" / "runtime"


@pytest.fixture
def supervisor(node: Path) -> Iterator[FakeSupervisor]:
    fake = FakeSupervisor(node, made)
    yield fake
    fake.end()


def test_a_socket_is_of_the_kind_that_was_asked_for(node: Path, supervisor: FakeSupervisor) -> None:
    asked = sockets.sockets_of(str(node))
    with asked.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        assert (found.family, found.type) == (socket.AF_INET, socket.SOCK_DGRAM)
    asked.close()


def test_the_next_supervisor_is_asked_when_one_has_ended(node: Path) -> None:
    first = FakeSupervisor(node, made)
    asked = sockets.sockets_of(str(node))
    asked.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    first.end()
    with pytest.raises(ConnectionRefusedError, match="no supervisor"):
        asked.socket(socket.AF_INET, socket.SOCK_STREAM)
    second = FakeSupervisor(node, made)
    asked.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    asked.close()
    second.end()


def test_another_node_of_the_cluster_serves_too(node: Path, tmp_path: Path) -> None:
    other = FakeSupervisor(tmp_path / "nodes" / "node-2" / "runtime", made)
    for asked in (sockets.sockets_of(str(node)), sockets.sockets_of_nodes(f"{tmp_path}/nodes")):
        asked.socket(socket.AF_INET, socket.SOCK_STREAM).close()
        asked.close()
    other.end()


def test_a_refusal_is_an_error(node: Path) -> None:
    fake = FakeSupervisor(node, refused)
    asked = SupervisorSockets(lambda: [str(node)])
    with pytest.raises(OSError, match="not switch"):
        asked.switch("kbr0", "forwarding", "1")
    asked.close()
    fake.end()


def test_only_nodes_of_one_cluster_are_siblings(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "nodes" / name / "runtime").mkdir(parents=True)
        (tmp_path / "other" / name / "runtime").mkdir(parents=True)
    nodes, other = str(tmp_path / "nodes"), str(tmp_path / "other")
    assert sockets.siblings(f"{nodes}/a/runtime") == [f"{nodes}/b/runtime"]
    assert sockets.siblings(f"{other}/a/runtime") == []
    assert sockets.siblings(str(tmp_path)) == []
