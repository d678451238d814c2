"""A trial of an uplink: a word goes from the nodes' network to an address of this machine and back,
as a datagram and over a connection, and a connection to a closed port is refused. No other machine
takes part."""

import os
import select
import socket
from ipaddress import IPv4Address
from typing import Final

from kedge.machinery.interfaces import own_addresses
from kedge.node.network.way_out import is_outside

_SECONDS: Final = 2.0
_WORD_BYTES: Final = 16


def machine_address() -> str:
    """Return an address of this machine that pods may reach; empty if it has none."""
    found = (each for each in own_addresses() if ":" not in each)
    return next((each for each in found if is_outside(IPv4Address(each))), "")


def datagram_problem(inner: socket.socket, address: str) -> str:
    """Return why a datagram from a socket of the nodes' network does not reach the machine, or its
    answer does not come back; empty if it does. Blocks for some seconds at most."""
    word = os.urandom(_WORD_BYTES)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outer:
            outer.bind((address, 0))
            outer.settimeout(_SECONDS)
            inner.settimeout(_SECONDS)
            inner.sendto(word, outer.getsockname())
            heard, sender = outer.recvfrom(_WORD_BYTES)
            outer.sendto(heard[::-1], sender)
            is_back = inner.recv(_WORD_BYTES) == word[::-1]
    except OSError as error:
        return f"no datagram passes: {error}"
    return "" if is_back else "datagrams are changed"


def connection_problem(inner: socket.socket, address: str) -> str:
    """Return why a connection from a socket of the nodes' network does not reach the machine; empty
    if it does. Blocks for some seconds at most."""
    word = os.urandom(_WORD_BYTES)
    try:
        with socket.create_server((address, 0)) as outer:
            outer.settimeout(_SECONDS)
            inner.setblocking(False)
            inner.connect_ex(outer.getsockname())
            accepted, _ = outer.accept()
            with accepted:
                accepted.sendall(word)
                is_back = _received(inner, len(word)) == word
    except OSError as error:
        return f"no connection passes: {error}"
    return "" if is_back else "no connection passes"


def refusal_problem(inner: socket.socket, address: str) -> str:
    """Return why a connection from a socket of the nodes' network to a closed port does not fail at
    once; empty if it does. The pasta of Debian 12 lets it wait for minutes."""
    try:
        with socket.socket() as closed:
            # Bound, so that no other program takes the port, but not listening.
            closed.bind((address, 0))
            inner.settimeout(_SECONDS)
            inner.connect(closed.getsockname())
    except ConnectionRefusedError:
        return ""
    except OSError as error:
        return f"a refused connection is not answered: {error}"
    return "a refused connection is accepted"


def _received(connection: socket.socket, size: int) -> bytes:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return connection.recv(size) if poll.poll(1000 * _SECONDS) else b""
