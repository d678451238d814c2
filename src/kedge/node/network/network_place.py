"""The network namespace in which a node's pods are attached: the machine's, or one of its own.

Code of this package makes its sockets by a namespace, and is the same for root and for an ordinary
user.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from kedge.machinery.sockets import connected_socket

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]

USER_MTU: Final = 65520
"""The largest packet in the network of an ordinary user's nodes, which never reaches a wire. It is
the largest that slirp4netns carries: each packet is a system call of the program, so the usual 1500
bytes would be several times slower."""
_LINKS: Final = Path("/proc/sys/net/ipv4/conf")


class NetworkPlace(Protocol):
    """Where the sockets of a node are made. All methods raise OSError."""

    is_machine: bool
    """Whether it is the one in which this process runs."""

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a new socket."""
        ...

    def switch(self, link: str, name: str, value: str) -> None:
        """Change a setting of a link: /proc/sys/net/ipv4/conf/LINK/NAME."""
        ...

    async def connect(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str = ""
    ) -> Ends:
        """Connect to an address."""
        ...


class MachineNetwork:
    """The network namespace of this process."""

    is_machine: bool = True

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)

    def switch(self, link: str, name: str, value: str) -> None:
        (_LINKS / link / name).write_text(value)

    async def connect(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str = ""
    ) -> Ends:
        return await asyncio.open_connection(
            host, port, ssl=tls, server_hostname=server_name if tls else None
        )


MACHINE: Final = MachineNetwork()


class NamespaceSockets(Protocol):
    """Makes sockets in a network namespace (kedge.supervisor.sockets)."""

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket: ...

    def switch(self, link: str, name: str, value: str) -> None: ...


class UserNetwork:
    """The network namespace of an ordinary user's nodes, which their supervisors hold."""

    is_machine: bool = False

    def __init__(self, sockets: NamespaceSockets) -> None:
        self._sockets = sockets

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return self._sockets.socket(family, kind, protocol)

    def switch(self, link: str, name: str, value: str) -> None:
        self._sockets.switch(link, name, value)

    async def connect(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str = ""
    ) -> Ends:
        made = await connected_socket(self.socket, host, port)
        return await asyncio.open_connection(
            sock=made, ssl=tls, server_hostname=server_name if tls else None
        )


class SocketKeeper(Protocol):
    """Keeps sockets open while the agent restarts. Raises RuntimeFailure."""

    async def keep_sockets(self, name: str, descriptors: Sequence[int]) -> None: ...

    async def kept_sockets(self, name: str) -> list[int]: ...
