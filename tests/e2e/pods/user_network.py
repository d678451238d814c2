"""Pods of an ordinary user that look at their network, and servers on the machine."""

import contextlib
import http.server
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import User


def running(home: Path) -> list[str]:
    """The processes that have to do with a directory."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_text()
        except OSError:
            continue
        if str(home) in words:
            found.append(words)
    return found


def shell(user: "User") -> None:
    """A pod from which to look at the network."""
    user.reads("run", "shell", "--image=host", "--", "sleep", "1000")
    user.reads("wait", "--for=condition=Ready", "pod/shell", "--timeout=60s")


def ask(user: "User", url: str) -> str:
    """The page at a URL as a pod sees it; empty if there is none."""
    script = f"import urllib.request as u; print(u.urlopen('{url}', timeout=5).read().decode())"
    return user.kubectl("exec", "shell", "--", "python3", "-c", script).stdout.strip()


class Echo(socketserver.BaseRequestHandler):
    """Answers a datagram with the same."""

    def handle(self) -> None:
        data, channel = self.request
        channel.sendto(data, self.client_address)


class Page(http.server.BaseHTTPRequestHandler):
    """Answers every request with the same page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"outside")

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(server: socketserver.BaseServer) -> Iterator[int]:
    """Serve on the machine; yields the port."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
