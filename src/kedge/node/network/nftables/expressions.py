"""Expressions of nf_tables rules, as bytes. A rule is a sequence of them.

An expression reads and writes registers of 32 bits, numbered from 8 to 23. A concatenation lies in
consecutive registers, and each of its fields is padded to 32 bits.
"""

import sys
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from kedge.node.network.nftables.attributes import attribute, nested, number, text

Rule = bytes
"""The expressions of one rule, encoded."""

VERDICT: Final = 0
"""The register of the verdict."""
_NETWORK, _TRANSPORT = 1, 2
_EQUAL, _DIFFERENT = 0, 1
_MARK, _IN_NAME, _OUT_NAME, _PROTOCOL = 3, 6, 7, 16
_STATE, _STATUS = 0, 2
NEW: Final = 8
"""The state of a connection at its first packet."""
_TRANSLATED: Final = 0x20
"""IPS_DST_NAT: the destination of the connection was changed."""
_DROP, _ACCEPT = 0, 1
_GOTO: Final = -4
_OVER: Final = 1
_LOCAL: Final = 2
"""RTN_LOCAL: an address of this machine."""
_SCRATCH: Final = 20
"""The first of the four registers for values that one comparison needs."""


def rule(*expressions: bytes) -> Rule:
    return nested(4, *expressions)


def verdict(code: int, chain: str = "") -> bytes:
    """Return the content of a verdict, as an element of a map or an immediate value has it."""
    return nested(2, number(1, code), text(2, chain) if chain else b"")


def goto_verdict(chain: str) -> bytes:
    return verdict(_GOTO, chain)


def drop_verdict() -> bytes:
    return verdict(_DROP)


def goto(chain: str) -> bytes:
    return _expression("immediate", number(1, VERDICT), nested(2, goto_verdict(chain)))


def drop() -> bytes:
    return _expression("immediate", number(1, VERDICT), nested(2, drop_verdict()))


def accept() -> bytes:
    """End this base chain; the next ones still see the packet."""
    return _expression("immediate", number(1, VERDICT), nested(2, verdict(_ACCEPT)))


def immediate(register: int, value: bytes) -> bytes:
    return _expression("immediate", number(1, register), nested(2, attribute(1, value)))


def load_source(register: int) -> bytes:
    return _payload(register, _NETWORK, 12, 4)


def load_destination(register: int) -> bytes:
    return _payload(register, _NETWORK, 16, 4)


def load_protocol(register: int) -> bytes:
    return _expression("meta", number(1, register), number(2, _PROTOCOL))


def load_destination_port(register: int) -> bytes:
    return _payload(register, _TRANSPORT, 2, 2)


def load_random(register: int, below: int, first: int) -> bytes:
    """Load a random number from `first` up to, but not including, `first` + `below`."""
    offset = number(4, first) if first else b""
    return _expression("numgen", number(1, register), number(2, below), number(3, 1), offset)


def is_drawn(one_in: int) -> bytes:
    """Match one in so many packets, at random."""
    return load_random(_SCRATCH, one_in, 0) + _compare(_SCRATCH, _EQUAL, bytes(4))


def lookup(name: str, source: int, result: int) -> bytes:
    """Look up a key in a map; continue only if it is there."""
    return _expression("lookup", text(1, name), number(2, source), number(3, result))


def is_in_set(name: str, source: int) -> bytes:
    return _expression("lookup", text(1, name), number(2, source))


def update_set(name: str, source: int) -> bytes:
    """Add an element, or start its time anew."""
    return _expression("dynset", text(1, name), number(3, 1), number(4, source))


def has_more_connections(name: str, source: int, than: int) -> bytes:
    """Match if a key, which is kept in a dynamic set, has more open connections than this."""
    counted = text(1, "connlimit") + nested(2, number(1, than), number(2, _OVER))
    return _expression("dynset", text(1, name), number(3, 0), number(4, source), nested(7, counted))


def translate_destination(address: int, port: int) -> bytes:
    """Change the destination to the address and port in these registers."""
    return _expression("nat", number(1, 1), number(2, 2), number(3, address), number(5, port))


def masquerade() -> bytes:
    return _expression("masq", number(1, 16))


def refuse_tcp() -> bytes:
    """Answer with a reset. Unlike ICMP errors, resets are not limited to a few per second."""
    return _expression("reject", number(1, 1), attribute(2, b"\0"))


def refuse() -> bytes:
    """Answer that the port is unreachable."""
    return _expression("reject", number(1, 0), attribute(2, b"\3"))


def is_input(link: str) -> bytes:
    return _name(_IN_NAME) + _compare(_SCRATCH, _EQUAL, _padded(link))


def is_output(link: str) -> bytes:
    return _name(_OUT_NAME) + _compare(_SCRATCH, _EQUAL, _padded(link))


def is_not_input_of(prefix: str) -> bytes:
    """Match packets from links whose names do not begin like this."""
    return _name(_IN_NAME) + _compare(_SCRATCH, _DIFFERENT, prefix.encode())


def is_protocol(protocol: int) -> bytes:
    return load_protocol(_SCRATCH) + _compare(_SCRATCH, _EQUAL, bytes([protocol]))


def is_from(network: IPv4Network) -> bytes:
    return load_source(_SCRATCH) + _within(network, _EQUAL)


def is_to(network: IPv4Network) -> bytes:
    return load_destination(_SCRATCH) + _within(network, _EQUAL)


def is_not_to(network: IPv4Network) -> bytes:
    return load_destination(_SCRATCH) + _within(network, _DIFFERENT)


def is_to_address(address: IPv4Address) -> bytes:
    return load_destination(_SCRATCH) + _compare(_SCRATCH, _EQUAL, address.packed)


def is_to_port(port: int) -> bytes:
    return load_destination_port(_SCRATCH) + _compare(_SCRATCH, _EQUAL, port.to_bytes(2, "big"))


def is_to_this_machine() -> bytes:
    find = _expression("fib", number(1, _SCRATCH), number(2, 3), number(3, 2))
    return find + _compare(_SCRATCH, _EQUAL, _host_order(_LOCAL))


def is_new() -> bytes:
    state = _expression("ct", number(1, _SCRATCH), number(2, _STATE))
    return state + _has_bits(NEW)


def is_translated() -> bytes:
    status = _expression("ct", number(1, _SCRATCH), number(2, _STATUS))
    return status + _has_bits(_TRANSLATED)


def set_mark(bits: int) -> bytes:
    """Add bits to the mark of the packet."""
    load = _expression("meta", number(1, _SCRATCH), number(2, _MARK))
    mask, added = _host_order(0xFFFFFFFF ^ bits), _host_order(bits)
    store = _expression("meta", number(3, _SCRATCH), number(2, _MARK))
    return load + _bitwise(mask, added) + store


def clear_mark(bits: int) -> bytes:
    load = _expression("meta", number(1, _SCRATCH), number(2, _MARK))
    store = _expression("meta", number(3, _SCRATCH), number(2, _MARK))
    return load + _bitwise(_host_order(0xFFFFFFFF ^ bits), bytes(4)) + store


def is_marked(bits: int) -> bytes:
    return _expression("meta", number(1, _SCRATCH), number(2, _MARK)) + _has_bits(bits)


def key(fields: Sequence[bytes]) -> bytes:
    """Return a concatenation, each field padded to 32 bits."""
    return b"".join(field + bytes(-len(field) % 4) for field in fields)


def _has_bits(bits: int) -> bytes:
    return _bitwise(_host_order(bits), bytes(4)) + _compare(_SCRATCH, _DIFFERENT, bytes(4))


def _within(network: IPv4Network, operator: int) -> bytes:
    masked = _bitwise(network.netmask.packed, bytes(4))
    return masked + _compare(_SCRATCH, operator, network.network_address.packed)


def _name(which: int) -> bytes:
    return _expression("meta", number(1, _SCRATCH), number(2, which))


def _padded(link: str) -> bytes:
    return link.encode().ljust(16, b"\0")


def _payload(register: int, base: int, offset: int, size: int) -> bytes:
    return _expression(
        "payload", number(1, register), number(2, base), number(3, offset), number(4, size)
    )


def _compare(register: int, operator: int, value: bytes) -> bytes:
    wanted = nested(3, attribute(1, value))
    return _expression("cmp", number(1, register), number(2, operator), wanted)


def _bitwise(mask: bytes, flipped: bytes) -> bytes:
    return _expression(
        "bitwise",
        number(1, _SCRATCH),
        number(2, _SCRATCH),
        number(3, len(mask)),
        nested(4, attribute(1, mask)),
        nested(5, attribute(1, flipped)),
    )


def _host_order(value: int) -> bytes:
    """The mark and the state of a connection are numbers of the machine, not of the network."""
    return value.to_bytes(4, sys.byteorder)


def _expression(name: str, *attributes: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *attributes))
