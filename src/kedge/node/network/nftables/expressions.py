"""Expressions of nf_tables rules, as bytes. A rule is a sequence of them.

An expression reads and writes registers of 32 bits, numbered from 8 to 23. A concatenation lies in
consecutive registers, and each of its fields is padded to 32 bits.
"""

import sys
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from kedge.node.network.nftables.attributes import (
    attribute,
    long_number,
    nested,
    number,
    text,
)

Rule = bytes
"""The expressions of one rule, encoded."""

VERDICT: Final = 0
"""The register of the verdict."""
_FRAME, _NETWORK, _TRANSPORT = 0, 1, 2
_EQUAL, _DIFFERENT = 0, 1
_ETHER_TYPE, _MARK, _IN_INDEX, _IN_NAME, _OUT_NAME, _PROTOCOL = 1, 3, 4, 6, 7, 16
_STATE, _DIRECTION, _STATUS = 0, 1, 2
NEW: Final = 8
"""The state of a connection at its first packet."""
_RELATED: Final = 4
"""The state of an error message about a known connection, or of a connection that it announced."""
_REPLY: Final = 1
_TRANSLATED: Final = 0x20
"""IPS_DST_NAT: the destination of the connection was changed."""
_CT_DESTINATION, _CT_DESTINATION_PORT = 20, 12
_DROP, _ACCEPT = 0, 1
_JUMP, _GOTO = -3, -4
_OVER: Final = 1
_INVERTED: Final = 1
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


def jump(chain: str) -> bytes:
    """Visit a chain; the next rule follows unless a rule of it decides."""
    return _expression("immediate", number(1, VERDICT), nested(2, verdict(_JUMP, chain)))


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


def load_input(register: int) -> bytes:
    """Load the index of the link by which the packet came; of a frame, the port of the bridge."""
    return _expression("meta", number(1, register), number(2, _IN_INDEX))


def is_hardware_destination(address: bytes) -> bytes:
    """Match frames to a hardware address."""
    return _payload(_SCRATCH, _FRAME, 0, 6) + _compare(_SCRATCH, _EQUAL, address)


def load_hardware_source(register: int) -> bytes:
    """Load the sender of a frame, into two registers."""
    return _payload(register, _FRAME, 6, 6)


def load_arp_hardware_source(register: int) -> bytes:
    return _payload(register, _NETWORK, 8, 6)


def load_arp_source(register: int) -> bytes:
    return _payload(register, _NETWORK, 14, 4)


def load_protocol(register: int) -> bytes:
    return _expression("meta", number(1, register), number(2, _PROTOCOL))


def load_destination_port(register: int) -> bytes:
    return _payload(register, _TRANSPORT, 2, 2)


def load_original_destination(register: int) -> bytes:
    """Load the destination that the connection had before it was changed."""
    return _original(register, _CT_DESTINATION)


def load_original_destination_port(register: int) -> bytes:
    return _original(register, _CT_DESTINATION_PORT)


def _original(register: int, key: int) -> bytes:
    return _expression("ct", number(1, register), number(2, key), attribute(3, b"\0"))


def load_wrapped(register: int, offset: int, size: int) -> bytes:
    """Load bytes at an offset from the transport header, for instance of a packet in a tunnel."""
    return _payload(register, _TRANSPORT, offset, size)


def mask(register: int, kept: bytes) -> bytes:
    """Clear all bits of a register but these."""
    return _bitwise(kept, bytes(len(kept)), register)


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


def is_not_in_set(name: str, source: int) -> bytes:
    return _expression("lookup", text(1, name), number(2, source), number(5, _INVERTED))


def update_set(name: str, source: int) -> bytes:
    """Add an element, or start its time anew."""
    return _expression("dynset", text(1, name), number(3, 1), number(4, source))


def has_more_connections(name: str, source: int, than: int) -> bytes:
    """Match if a key, which is kept in a dynamic set, has more open connections than this."""
    counted = text(1, "connlimit") + nested(2, number(1, than), number(2, _OVER))
    return _expression("dynset", text(1, name), number(3, 0), number(4, source), nested(7, counted))


def comes_faster(name: str, source: int, than: int, burst: int) -> bytes:
    """Match if packets of a key, which is kept in a dynamic set, come faster than so many per
    second."""
    rate = long_number(1, than) + long_number(2, 1) + number(3, burst)
    limited = text(1, "limit") + nested(2, rate, number(4, 0), number(5, _INVERTED))
    return _expression("dynset", text(1, name), number(3, 1), number(4, source), nested(7, limited))


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


def is_not_input(link: str) -> bytes:
    return _name(_IN_NAME) + _compare(_SCRATCH, _DIFFERENT, _padded(link))


def is_not_input_of(prefix: str) -> bytes:
    """Match packets from links whose names do not begin like this."""
    return _name(_IN_NAME) + _compare(_SCRATCH, _DIFFERENT, prefix.encode())


def is_ether_type(kind: int) -> bytes:
    load = _expression("meta", number(1, _SCRATCH), number(2, _ETHER_TYPE))
    return load + _compare(_SCRATCH, _EQUAL, kind.to_bytes(2, "big"))


def is_protocol(protocol: int) -> bytes:
    return load_protocol(_SCRATCH) + _compare(_SCRATCH, _EQUAL, bytes([protocol]))


def is_from(network: IPv4Network) -> bytes:
    return load_source(_SCRATCH) + _within(network, _EQUAL)


def is_not_from(network: IPv4Network) -> bytes:
    return load_source(_SCRATCH) + _within(network, _DIFFERENT)


def is_to(network: IPv4Network) -> bytes:
    return load_destination(_SCRATCH) + _within(network, _EQUAL)


def is_not_to(network: IPv4Network) -> bytes:
    return load_destination(_SCRATCH) + _within(network, _DIFFERENT)


def is_to_address(address: IPv4Address) -> bytes:
    return load_destination(_SCRATCH) + _compare(_SCRATCH, _EQUAL, address.packed)


def is_to_port(port: int) -> bytes:
    return load_destination_port(_SCRATCH) + _compare(_SCRATCH, _EQUAL, port.to_bytes(2, "big"))


def has_wrapped(offset: int, value: bytes) -> bytes:
    """Match bytes at an offset from the transport header."""
    return load_wrapped(_SCRATCH, offset, len(value)) + _compare(_SCRATCH, _EQUAL, value)


def has_wrapped_address(offset: int, network: IPv4Network) -> bytes:
    return load_wrapped(_SCRATCH, offset, 4) + _within(network, _EQUAL)


def is_to_this_machine() -> bytes:
    return _destination_type() + _compare(_SCRATCH, _EQUAL, host_order(_LOCAL))


def is_not_to_this_machine() -> bytes:
    return _destination_type() + _compare(_SCRATCH, _DIFFERENT, host_order(_LOCAL))


def is_routed_by(link: str) -> bytes:
    """Match packets whose route leads to a link, before they are routed."""
    route = _expression("fib", number(1, _SCRATCH), number(2, 2), number(3, 2))
    return route + _compare(_SCRATCH, _EQUAL, _padded(link))


def _destination_type() -> bytes:
    return _expression("fib", number(1, _SCRATCH), number(2, 3), number(3, 2))


def is_new() -> bytes:
    state = _expression("ct", number(1, _SCRATCH), number(2, _STATE))
    return state + _has_bits(NEW)


def is_related() -> bytes:
    state = _expression("ct", number(1, _SCRATCH), number(2, _STATE))
    return state + _has_bits(_RELATED)


def is_answer() -> bytes:
    """Match packets to the side that opened the connection."""
    direction = _expression("ct", number(1, _SCRATCH), number(2, _DIRECTION))
    return direction + _compare(_SCRATCH, _EQUAL, bytes([_REPLY]))


def is_translated() -> bytes:
    status = _expression("ct", number(1, _SCRATCH), number(2, _STATUS))
    return status + _has_bits(_TRANSLATED)


def set_mark(bits: int) -> bytes:
    """Add bits to the mark of the packet."""
    load = _expression("meta", number(1, _SCRATCH), number(2, _MARK))
    kept, added = host_order(0xFFFFFFFF ^ bits), host_order(bits)
    store = _expression("meta", number(3, _SCRATCH), number(2, _MARK))
    return load + _bitwise(kept, added) + store


def clear_mark(bits: int) -> bytes:
    load = _expression("meta", number(1, _SCRATCH), number(2, _MARK))
    store = _expression("meta", number(3, _SCRATCH), number(2, _MARK))
    return load + _bitwise(host_order(0xFFFFFFFF ^ bits), bytes(4)) + store


def is_marked(bits: int) -> bytes:
    return _expression("meta", number(1, _SCRATCH), number(2, _MARK)) + _has_bits(bits)


def key(fields: Sequence[bytes]) -> bytes:
    """Return a concatenation, each field padded to 32 bits."""
    return b"".join(field + bytes(-len(field) % 4) for field in fields)


def _has_bits(bits: int) -> bytes:
    return _bitwise(host_order(bits), bytes(4)) + _compare(_SCRATCH, _DIFFERENT, bytes(4))


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


def _bitwise(kept: bytes, flipped: bytes, register: int = _SCRATCH) -> bytes:
    return _expression(
        "bitwise",
        number(1, register),
        number(2, register),
        number(3, len(kept)),
        nested(4, attribute(1, kept)),
        nested(5, attribute(1, flipped)),
    )


def host_order(value: int) -> bytes:
    """Return a number of the machine, not of the network: a mark, a state, the index of a link."""
    return value.to_bytes(4, sys.byteorder)


def _expression(name: str, *attributes: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *attributes))
