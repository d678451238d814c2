"""Sockets in the network namespace of a cluster's nodes, for agents and servers.

The supervisors of an ordinary user have a network namespace of their own
(kedge.supervisor.network). Another process of the user cannot enter it without leaving its own user
namespace, but it may use sockets that a supervisor makes: the kernel counts the owner of a user
namespace as privileged in it.
"""

import contextlib
import glob
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from kedge.supervisor import wire

_NODES, _RUNTIME = "nodes", "runtime"
_ANSWER_SECONDS: Final = 5.0
_Socket = socket.socket


def connected(directory: str) -> socket.socket | None:
    """Return a connection to the supervisor of a directory; None if it does not run."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            made.connect(wire.address(descriptor))
        finally:
            os.close(descriptor)
    except (FileNotFoundError, ConnectionRefusedError):
        made.close()
        return None
    except OSError:
        made.close()
        raise
    return made


def supervisor(directory: str) -> int:
    """Return the pid of the supervisor that listens in a directory; 0 if there is none.

    The kernel stores the listener's pid with the socket (SO_PEERCRED in unix(7)), so this also
    works for a stopped process.
    """
    found = connected(directory)
    if found is None:
        return 0
    with found:
        size = struct.calcsize("3i")
        credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[0])


class SupervisorSockets:
    """Makes sockets in the network namespace of the supervisors of a cluster. Thread-safe; a call
    takes a fraction of a millisecond. Raises OSError."""

    def __init__(self, directories: Callable[[], Sequence[str]]) -> None:
        """`directories` returns those of the supervisors, the preferred one first."""
        self._directories = directories
        self._lock = threading.Lock()
        self._connection: _Socket | None = None

    def socket(self, family: int, kind: int, protocol: int = 0) -> _Socket:
        """Return a new socket, as socket.socket would."""
        _, descriptors = self._ask(
            {"do": "socket", "family": int(family), "kind": int(kind), "protocol": protocol}
        )
        return socket.socket(fileno=descriptors[0])

    def switch(self, link: str, name: str, value: str) -> None:
        """Change a setting of a link: /proc/sys/net/ipv4/conf/LINK/NAME."""
        self._ask({"do": "switch", "link": link, "name": name, "value": value})

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _ask(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            is_kept = self._connection is not None
            try:
                answer, descriptors = self._exchange(message)
            except OSError:
                if not is_kept:
                    raise
                # The kept connection was to a supervisor that has ended.
                answer, descriptors = self._exchange(message)
        if "error" in answer:
            raise OSError(answer["error"])
        return answer, descriptors

    def _exchange(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        connection = self._connection = self._connection or self._connect()
        try:
            wire.post(connection, *wire.packet({"id": 0, **message}))
            return wire.take(connection)
        except wire.PeerClosed:
            self._disconnect()
            raise ConnectionResetError("the supervisor has ended") from None
        except OSError:
            self._disconnect()
            raise

    def _connect(self) -> _Socket:
        for directory in self._directories():
            with contextlib.suppress(OSError):
                if found := connected(directory):
                    found.settimeout(_ANSWER_SECONDS)
                    return found
        raise ConnectionRefusedError("no supervisor of the cluster runs on this machine")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def sockets_of(directory: str) -> SupervisorSockets:
    """Return the sockets of a supervisor's network namespace; the other supervisors of the cluster
    have the same one."""
    return SupervisorSockets(lambda: [directory, *siblings(directory)])


def sockets_of_nodes(nodes: str) -> SupervisorSockets:
    """Return the sockets of the network namespace of a cluster's nodes on this machine."""
    return SupervisorSockets(lambda: _supervisors(nodes))


def siblings(directory: str) -> list[str]:
    """Return the directories of the other supervisors of the cluster, NODES/NAME/runtime."""
    nodes = nodes_directory(directory)
    return [each for each in _supervisors(nodes) if each != directory] if nodes else []


def nodes_directory(directory: str) -> str:
    """Return the directory of all nodes of the cluster on this machine; empty for a supervisor
    outside of a cluster."""
    nodes = os.path.dirname(os.path.dirname(directory))
    is_node = os.path.basename(directory) == _RUNTIME and os.path.basename(nodes) == _NODES
    return nodes if is_node else ""


def _supervisors(nodes: str) -> list[str]:
    return sorted(glob.glob(f"{glob.escape(nodes)}/*/{_RUNTIME}"))
