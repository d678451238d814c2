"""Attacks by authors of pods, and by what runs in them."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.cluster import process


class Agent:
    """The node agent of the suite's cluster, as the machine sees it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.node = state / "nodes" / "node-1"

    @property
    def pid(self) -> int:
        found = process.running(self.node, "node")
        assert found is not None, "the agent is gone"
        return found.pid

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def agent(cluster: Any) -> Agent:
    if "KEDGE_E2E_KUBECONFIG" in os.environ:
        pytest.skip("the cluster must be our own to look at its agent")
    return Agent(cluster.home / "state")


@pytest.fixture
def responds(pods: Any) -> Callable[[str], None]:
    """Says that the node still does its work: a pod starts, and ends."""

    def start(name: str) -> None:
        assert pods.says(name, "echo well") == "well"

    return start


class Listener:
    """A TCP port of the machine's loopback, and what was sent to it."""

    def __init__(self, answer: Callable[[Any], None] | None = None) -> None:
        self._answer = answer
        self.received: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: Any) -> None:
        with connected:
            connected.settimeout(5)
            try:
                self.received.append(connected.recv(65_536))
                if self._answer is not None:
                    self._answer(connected)
            except OSError:
                return

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def listen(answer: Callable[[Any], None] | None = None) -> Listener:
        made.append(Listener(answer))
        return made[-1]

    yield listen
    for each in made:
        each.close()
