"""The program `etcd` of `kedge envtest`: it only says that it is healthy, and where data belong.

envtest waits for its health and passes its address to the API server, which keeps its objects in a
file instead. It is run as a script with the standard library alone, so that it starts at once.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NoReturn
from urllib.parse import urlsplit

VERSION = "3.6.0"
SECONDS = 2.0
"""How long a client may take for each piece of its request."""
MOST_PIECES = 8
"""How many pieces a request may come in."""
MOST_CLIENTS = 64
"""How many are answered at a time; others wait for one of them to end."""
HELP = """\
Usage:
  etcd [flags]
    The etcd of "kedge envtest": it answers /health, and keeps no data.

Flags:
  --data-dir DIR
  --listen-client-urls URLS
  --advertise-client-urls URLS
  --listen-peer-urls URLS
  --unsafe-no-fsync
"""


class FlagError(Exception):
    """A flag that cannot be understood."""


def read_flags(arguments: Sequence[str], lists: Container[str] = ()) -> dict[str, str]:
    """Return the flags by name. Of one that is given twice the last holds; lists add up."""
    found: dict[str, str] = {}
    for name, value in _given(arguments):
        adds_up = name in lists and name in found
        found[name] = f"{found[name]},{value}" if adds_up else value
    return found


def _given(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags; those without a value are "true"."""
    waiting = ""
    for each in arguments:
        if each.startswith("-"):
            if waiting:
                yield waiting, "true"
            name, is_given, value = each.lstrip("-").partition("=")
            if is_given:
                yield name, value
            waiting = "" if is_given else name
        elif waiting:
            yield waiting, each
            waiting = ""
        else:
            raise FlagError(f"unexpected argument: {each}")
    if waiting:
        yield waiting, "true"


def address_of(urls: str) -> tuple[str, int]:
    """Return host and port of the first URL."""
    first = urls.split(",")[0]
    parts = urlsplit(first)
    if parts.scheme != "http" or not parts.hostname or parts.port is None:
        raise FlagError(f"--listen-client-urls={first}: only http://HOST:PORT is supported")
    return parts.hostname, parts.port


def answer(path: str, data: str) -> bytes:
    """Return the response to a GET of a path."""
    pages: Mapping[str, object] = {
        "/health": {"health": "true", "reason": ""},
        "/readyz": {"health": "true"},
        "/livez": {"health": "true"},
        "/version": {"etcdserver": VERSION, "etcdcluster": VERSION},
        "/kedge": {"dataDir": data},
    }
    page = pages.get(path.partition("?")[0])
    status = "404 Not Found" if page is None else "200 OK"
    body = json.dumps(page).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


def serve(connected: socket.socket, data: str) -> None:
    """Answer one client."""
    connected.settimeout(SECONDS)
    try:
        asked = b""
        for _ in range(MOST_PIECES):
            piece = connected.recv(4096)
            asked += piece
            if not piece or b"\r\n\r\n" in asked:
                break
        words = asked.split(b" ", 2)
        if len(words) == 3:
            connected.sendall(answer(words[1].decode("latin-1"), data))
    except OSError:
        return


def serve_all(listener: socket.socket, data: str) -> NoReturn:
    """Answer each client in a thread of its own, so that one that is silent delays no other."""
    free = threading.BoundedSemaphore(MOST_CLIENTS)

    def answer_client(connected: socket.socket) -> None:
        try:
            with connected:
                serve(connected, data)
        finally:
            free.release()

    while True:
        free.acquire()
        connected, _ = listener.accept()
        threading.Thread(target=answer_client, args=[connected], daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        flags = read_flags(arguments)
        host, port = address_of(flags.get("listen-client-urls", "http://localhost:2379"))
        data = os.path.abspath(flags.get("data-dir", "default.etcd"))
        os.makedirs(data, mode=0o700, exist_ok=True)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except (FlagError, OSError) as error:
        print(f"etcd of kedge envtest: {error}", file=sys.stderr)
        return 1
    serve_all(listener, data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
