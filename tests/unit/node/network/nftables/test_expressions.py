"""Expressions of rules, by their bytes."""

import sys
from ipaddress import IPv4Network

from kedge.node.network.nftables import expressions
from kedge.node.network.nftables.attributes import attribute, nested, number, text


def expression(name: str, *attributes: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *attributes))


def test_a_lookup_into_the_verdict_register() -> None:
    made = expressions.lookup("services", 8, expressions.VERDICT)
    assert made == expression("lookup", text(1, "services"), number(2, 8), number(3, 0))


def test_a_rule_is_a_list_of_expressions() -> None:
    one, two = expressions.load_destination(8), expressions.load_protocol(9)
    assert expressions.rule(one, two) == nested(4, one, two)


def test_the_fields_of_a_key_are_padded() -> None:
    assert expressions.key((b"\x0a\0\0\1", b"\6", b"\0\x50")) == b"\x0a\0\0\1\6\0\0\0\0\x50\0\0"


def test_a_network_is_compared_by_its_mask() -> None:
    made = expressions.is_from(IPv4Network("10.244.1.0/24"))
    assert nested(4, attribute(1, b"\xff\xff\xff\0")) in made
    assert nested(3, attribute(1, b"\x0a\xf4\x01\0")) in made


def test_marks_are_numbers_of_the_machine() -> None:
    bits = (0x4000).to_bytes(4, sys.byteorder)
    assert attribute(1, bits) in expressions.set_mark(0x4000)
    assert attribute(1, bits) in expressions.is_marked(0x4000)


def test_a_name_of_a_link_fills_its_registers_but_a_prefix_does_not() -> None:
    assert attribute(1, b"kbr0".ljust(16, b"\0")) in expressions.is_input("kbr0")
    assert nested(3, attribute(1, b"kbr")) in expressions.is_not_input_of("kbr")


def test_a_random_index_starts_where_it_should() -> None:
    plain = expressions.load_random(11, 3, 0)
    assert plain == expression("numgen", number(1, 11), number(2, 3), number(3, 1))
    assert number(4, 65536) in expressions.load_random(11, 3, 65536)
