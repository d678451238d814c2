"""The network addresses of this machine, in its network namespace."""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc/net")


def own_addresses() -> list[str]:
    """Every address under which others may reach this machine, IPv4 first."""
    return [*_ipv4(_content("fib_trie")), *_ipv6(_content("if_inet6"))]


def address_towards(host: str, port: int) -> str:
    """The address of the interface that leads to a host; OSError if none does."""
    (family, kind, protocol, _, target), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    with socket.socket(family, kind, protocol) as probe:
        # A datagram socket finds its way without sending anything.
        probe.connect(target)
        return str(probe.getsockname()[0])


def is_unspecified(host: str) -> bool:
    """Whether to listen there is to listen on every address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False


def is_reachable(host: str) -> bool:
    """Whether pods or other machines could reach a server at this address: neither a loopback nor
    an unspecified one, and not a name."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        return not (address.is_loopback or address.is_unspecified)
    return False


def _ipv4(trie: str) -> Iterator[str]:
    """Return the local addresses in the kernel's routing trie."""
    address, seen = "", set()
    for line in trie.splitlines():
        word = line.split()
        if word[:1] == ["|--"]:
            address = word[1]
        elif word == ["/32", "host", "LOCAL"] and address not in seen and _reachable(address):
            seen.add(address)
            yield address


def _ipv6(table: str) -> Iterator[str]:
    for line in table.splitlines():
        address = str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0])))
        if _reachable(address):
            yield address


def _reachable(address: str) -> bool:
    known = ipaddress.ip_address(address)
    return not (known.is_loopback or known.is_link_local)


def _content(name: str) -> str:
    # Other systems than Linux tell it otherwise; there, addresses have to be named.
    try:
        return (_PROC / name).read_text()
    except OSError:
        return ""
