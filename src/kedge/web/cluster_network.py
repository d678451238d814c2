"""How a server reaches the addresses of pods and nodes.

Root's nodes attach their pods to the machine's network, where the server is too. The nodes of an
ordinary user have a network namespace of their own: the server gets sockets in it from their
supervisors.
"""

import contextlib
import ipaddress
import os
import socket
from pathlib import Path
from typing import Final

from kedge.api.builtin.service_networks import POD_NETWORK
from kedge.machinery.sockets import SocketMaker
from kedge.supervisor.sockets import sockets_of_nodes


class ClusterNetwork:
    """The network of the nodes beside a server."""

    def __init__(self, inside: SocketMaker | None = None) -> None:
        """`inside` makes sockets in the network namespace of the nodes; None if that is the
        server's own."""
        self._inside = inside

    def maker(self, host: str) -> SocketMaker | None:
        """Return who makes sockets for connections to an address; None for this process."""
        return self._inside if _is_of_cluster(host) else None

    def listening_maker(self, host: str) -> SocketMaker:
        """Return who makes sockets that listen on an address."""
        return self.maker(host) or socket.socket


MACHINE: Final = ClusterNetwork()


def network_of(nodes: Path) -> ClusterNetwork:
    """Return the network of a cluster whose nodes on this machine have directories below this
    one."""
    if os.geteuid() == 0:
        return MACHINE
    return ClusterNetwork(sockets_of_nodes(str(nodes)).socket)


def _is_of_cluster(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.IPv4Address(host) in POD_NETWORK
    return False
