"""An emulator of the part of nf_tables that network policies use: what rules decide about a packet.

It reads the bytes that the kernel would read, so a test of decisions includes their encoding.
"""

import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from kedge.node.network.nftables.attributes import read_attributes, read_items, read_text
from kedge.node.network.ruleset import PROTOCOLS, Ruleset

_NEW_STATE: Final = 8
_DROP, _ACCEPT, _BREAK, _JUMP, _GOTO = 0, 1, -2, -3, -4
_EXPRESSIONS: Final = 4


class Packet(NamedTuple):
    """A packet that the machine forwards."""

    source: IPv4Address
    destination: IPv4Address
    protocol: str = "TCP"
    port: int = 0
    is_answer: bool = False


class PacketRules:
    """The rules of one table."""

    def __init__(self, rules: Ruleset) -> None:
        self._rules = rules

    def accepts(self, packet: Packet, hook: int) -> bool:
        """Return whether a packet passes all base chains of a hook."""
        return all(
            self._decide(name, packet) != _DROP
            for name, chain in self._rules.chains.items()
            if chain.hook is not None and chain.hook.number == hook
        )

    def _decide(self, chain: str, packet: Packet) -> int | None:
        """Return the verdict of a chain; None if no rule of it decides."""
        for each in self._rules.chains[chain].rules:
            verdict = self._run(each, packet)
            if verdict is None:
                continue
            code, target = verdict
            if code in (_JUMP, _GOTO):
                decided = self._decide(target, packet)
                if decided is not None or code == _GOTO:
                    return decided
                continue
            return code
        return None

    def _run(self, rule: bytes, packet: Packet) -> tuple[int, str] | None:
        """Return the verdict of a rule; None if the packet does not match it."""
        registers: dict[int, bytes] = {}
        for name, body in _expressions(rule):
            verdict = self._step(name, body, registers, packet)
            if verdict is not None:
                return None if verdict[0] == _BREAK else verdict
        return None

    def _step(
        self, name: str, body: dict[int, bytes], registers: dict[int, bytes], packet: Packet
    ) -> tuple[int, str] | None:
        match name:
            case "payload":
                registers[_number(body[1])] = _payload(body, packet)
            case "meta":
                assert _number(body[2]) == 16
                registers[_number(body[1])] = bytes([PROTOCOLS.get(packet.protocol, 1)])
            case "ct":
                state = _NEW_STATE.to_bytes(4, sys.byteorder)
                direction = bytes([packet.is_answer])
                registers[_number(body[1])] = direction if _number(body[2]) == 1 else state
            case "bitwise":
                mask = read_attributes(body[4])[1]
                value = registers[_number(body[1])]
                masked = bytes(a & b for a, b in zip(value, mask, strict=True))
                registers[_number(body[2])] = masked
            case "cmp":
                wanted = read_attributes(body[3])[1]
                is_equal = registers[_number(body[1])][: len(wanted)] == wanted
                if is_equal == bool(_number(body[2])):
                    return _BREAK, ""
            case "immediate":
                return _verdict(read_attributes(body[2])[2])
            case "lookup":
                return self._look_up(body, registers)
            case _:
                raise NotImplementedError(name)
        return None

    def _look_up(
        self, body: dict[int, bytes], registers: dict[int, bytes]
    ) -> tuple[int, str] | None:
        name, register = read_text(body[1]), _number(body[2])
        fields = len(self._rules.sets[name].key)
        key = b"".join(
            registers[each] + bytes(-len(registers[each]) % 4) if fields > 1 else registers[each]
            for each in range(register, register + fields)
        )
        if name in self._rules.ranges:
            number = int.from_bytes(key, "big")
            is_there = any(a <= number <= b for a, b in self._rules.ranges[name].ranges)
            return None if is_there else (_BREAK, "")
        elements = self._rules.elements.get(name, {})
        if key not in elements:
            return _BREAK, ""
        return _verdict(read_attributes(elements[key])[2]) if 3 in body else None


def _expressions(rule: bytes) -> Iterator[tuple[str, dict[int, bytes]]]:
    for _, each in read_items(read_attributes(rule)[_EXPRESSIONS]):
        found = read_attributes(each)
        yield read_text(found[1]), read_attributes(found.get(2, b""))


def _payload(body: dict[int, bytes], packet: Packet) -> bytes:
    match _number(body[2]), _number(body[3]):
        case 1, 12:
            return packet.source.packed
        case 1, 16:
            return packet.destination.packed
    return packet.port.to_bytes(2, "big")


def _verdict(content: bytes) -> tuple[int, str]:
    found = read_attributes(content)
    code = int.from_bytes(found[1], "big", signed=True)
    return code, read_text(found.get(2, b""))


def _number(content: bytes) -> int:
    return int.from_bytes(content, "big")
