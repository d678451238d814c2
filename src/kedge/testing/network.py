"""Network namespaces for tests of packet rules: machines and pods without a machine's settings."""

import asyncio
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

_NEW_NET: Final = 0x40000000


class NetworkNamespace:
    """A network namespace, held by a process that does nothing, and ends by itself after a
    while."""

    def __init__(self, seconds: int = 120) -> None:
        self._process = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", f"echo; exec sleep {seconds}"], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.path = f"/proc/{self._process.pid}/ns/net"

    def opened(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a socket inside."""
        made: list[socket.socket] = []

        def enter() -> None:
            # A thread may be elsewhere than the rest of its process; this one then ends.
            namespace = os.open(self.path, os.O_RDONLY)
            assert ctypes.CDLL(None).setns(namespace, _NEW_NET) == 0
            os.close(namespace)
            made.append(socket.socket(family, kind, protocol))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return made[0]

    def netlink(self) -> int:
        return self.opened(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE).detach()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def run_elsewhere(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in a thread with a network namespace of its own."""
    raised: list[BaseException] = []

    def enter() -> None:
        try:
            if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NET) != 0:
                raise OSError(ctypes.get_errno(), "cannot unshare the network namespace")
            asyncio.run(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
