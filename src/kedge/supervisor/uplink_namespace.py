"""The network namespace between an ordinary user's nodes and a program that carries their packets.

A program such as pasta or slirp4netns reads frames from a link and connects from the machine's
network to the addresses in them, loopback addresses included. Pods with the node's network may send
any frame on links of the nodes' namespace. So the program has its link in a namespace of its own,
which no pod is in, and which routes only to the outside.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Final

from kedge.supervisor.kernel import cgroups, libc

_SETTINGS: Final = {"forwarding": "1", "proxy_arp": "1"}
"""Programs ask by ARP for the address of the nodes' namespace, which is behind this one."""


def make() -> list[int]:
    """Return descriptors of a new namespace and of a socket of rtnetlink in it. It ends with the
    last of them and of the programs in it."""
    with _entered():
        for name, value in _SETTINGS.items():
            cgroups.write(f"/proc/sys/net/ipv4/conf/all/{name}", value)
        return handles()


def handles() -> list[int]:
    """Return the descriptors for the network namespace of this process."""
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    channel = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
    return [os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC), channel.detach()]


@contextlib.contextmanager
def _entered() -> Iterator[None]:
    """Be in a new network namespace for a moment. The supervisor has one thread."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc.unshare(libc.NEW_NET)
        try:
            yield
        finally:
            libc.setns(home, libc.NEW_NET)
    finally:
        os.close(home)
