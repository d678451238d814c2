"""Clusters to be attacked, and bystanders: others who use them meanwhile."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

USUAL_OPEN_FILES = 1024
"""The soft limit of an ordinary login."""
PATIENCE = 15.0
"""Seconds after which somebody who waits for an answer gives up."""


class Target(NamedTuple):
    """A server that speaks TLS."""

    host: str
    port: int
    ca_pem: str
    token: str
    pid: int

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), PATIENCE)

    def secure(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.ca_pem)
        return context.wrap_socket(self.connect(), server_hostname=self.host)

    def head(self, request_line: str, *fields: str, token: str = "") -> bytes:
        lines = [f"{request_line} HTTP/1.1", "Host: x", *fields]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        return "\r\n".join([*lines, "", ""]).encode()

    @property
    def memory(self) -> int:
        """Bytes of memory that the server has ever held at once."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024


def read_head(peer: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status and header of the next answer, and what has come of its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = peer.recv(1 << 16)
        if not piece:
            raise ConnectionError("no answer")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


class Bystander:
    """Asks the server for something small all the time: on a connection that it keeps, and now and
    then on a new one. `slowest` is how long it had to wait at most."""

    def __init__(self, target: Target, path: str) -> None:
        self._target = target
        self._request = target.head(f"GET {path}", token=target.token)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.kept: list[float] = []
        self.fresh: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> Bystander:
        self._connection = self._target.secure()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(4 * PATIENCE)
        self._connection.close()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.kept.append(self._timed(self._connection))
                start = time.perf_counter()
                with self._target.secure() as connection:
                    self._timed(connection)
                self.fresh.append(time.perf_counter() - start)
            except OSError as error:
                self.failures.append(repr(error))
                return
            self._over.wait(0.05)

    def _timed(self, connection: ssl.SSLSocket) -> float:
        start = time.perf_counter()
        connection.sendall(self._request)
        status, fields, body = read_head(connection)
        assert status == 200
        left = int(fields["content-length"]) - len(body)
        while left > 0:
            left -= len(connection.recv(left))
        return time.perf_counter() - start


class Attacks:
    """What the tests of this directory use."""

    target = Target
    bystander = Bystander
    read_head = staticmethod(read_head)


@pytest.fixture(scope="session")
def attacks() -> type[Attacks]:
    return Attacks


@contextlib.contextmanager
def usual_open_files() -> Iterator[None]:
    """Start programs as most people do. The test itself may have more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_OPEN_FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.fixture(scope="module")
def target(own_clusters: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The API server of a cluster that is this module's own."""
    own = own_clusters.own(tmp_path_factory.mktemp("attacked"))
    try:
        with usual_open_files():
            cluster = own.up()
        api, parts = cluster.api, urlsplit(cluster.api.url)
        yield Target(parts.hostname or "", parts.port or 0, api.ca_pem, api.token, own.pid())
    finally:
        own.kedge("down", *own.which, "--purge")
