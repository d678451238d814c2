"""Watches whose events are timed by the kernel, as they arrive, so that the client does not count.

A client with a hundred connections is woken a hundred times for one event, reads, decrypts and
parses, all on the processors that the server needs. Here nothing waits for the sockets: the kernel
notes when each segment arrived, and the client reads them when the event is over.
"""

import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

SO_TIMESTAMPNS = 35
"""The option and the kind of message, of Linux on processors with 64 bits. Python does not name
it."""
_TIMESPEC = struct.Struct("qq")
_TAIL = 512
"""Bytes that are looked at again with those that come next: a name may be cut in two."""
_PATIENCE_SECONDS = 30.0


class TimedWatch:
    """One connection with a watch."""

    def __init__(self, server: str, request: bytes) -> None:
        address = urlsplit(server)
        self._socket = socket.create_connection((address.hostname, address.port))
        self._socket.settimeout(_PATIENCE_SECONDS)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        tls = ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing)
        self._tail = b""
        self._shake_hands()
        self._tls.write(request)
        self._socket.sendall(self._outgoing.read())
        self._socket.setblocking(False)

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                self._incoming.write(self._socket.recv(1 << 16))
        self._socket.sendall(self._outgoing.read())

    def arrivals(self, pattern: re.Pattern[bytes]) -> Iterator[tuple[str, float]]:
        """Read what has arrived; yield what matches the pattern, and the time of its arrival."""
        while True:
            try:
                data, notes, _, _ = self._socket.recvmsg(1 << 16, 128)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionError("the server has ended a watch")
            self._incoming.write(data)
            text = self._tail + self._decrypted()
            for match in pattern.finditer(text):
                yield match[1].decode(), arrival(notes)
            self._tail = text[-_TAIL:]

    def _decrypted(self) -> bytes:
        pieces = []
        try:
            while piece := self._tls.read(1 << 16):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)


def arrival(notes: list[tuple[int, int, bytes]]) -> float:
    """Return the time at which the kernel got the last of the bytes."""
    for level, kind, value in notes:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds: int
            nanoseconds: int
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            return seconds + nanoseconds / 1e9
    raise RuntimeError("the kernel does not note when the bytes of TCP connections arrive")


class TimedWatches:
    """Many watches of one path, and when the events of each object arrived."""

    def __init__(self, server: str, path: str, headers: dict[str, str], prefix: str) -> None:
        """`prefix` is that of the names that count."""
        host = urlsplit(server).netloc
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n".encode()
        self._server = server
        self._pattern = re.compile(rb'"name":"(' + prefix.encode() + rb'[0-9]+)"')
        self._watches: list[TimedWatch] = []
        self.seen: dict[tuple[int, str], float] = {}
        """By watch and name: the first arrival."""

    def start(self, number: int) -> None:
        """Begin as many watches."""
        self._watches = [TimedWatch(self._server, self._request) for _ in range(number)]
        time.sleep(0.5)

    def collect(self) -> None:
        """Read what has arrived at all of them."""
        for index, watch in enumerate(self._watches):
            for name, at in watch.arrivals(self._pattern):
                self.seen.setdefault((index, name), at)
