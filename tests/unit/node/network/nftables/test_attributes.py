"""Attributes and messages are encoded as the kernel expects, and read back."""

from kedge.node.network.nftables import attributes


def test_an_attribute_is_padded_and_its_length_is_not() -> None:
    assert attributes.attribute(7, b"abcde") == b"\x09\0\x07\0abcde\0\0\0"


def test_numbers_are_big_endian_and_lists_are_nested() -> None:
    assert attributes.number(2, 6) == b"\x08\0\x02\0\0\0\0\x06"
    assert attributes.number(2, -4) == b"\x08\0\x02\0\xff\xff\xff\xfc"
    one = attributes.number(3, 1)
    assert attributes.items(4, [one]) == b"\x10\0\x04\x80\x0c\0\x01\x80" + one


def test_messages_are_read_back() -> None:
    body = attributes.text(1, "table") + attributes.long_number(11, 1000)
    sent = attributes.message(0xA00, 1, 5, body)
    ((kind, sequence, content),) = attributes.read_messages(sent)
    assert (kind, sequence) == (0xA00, 5)
    found = attributes.read_attributes(content[4:])
    assert attributes.read_text(found[1]) == "table"
    assert found[11] == (1000).to_bytes(8, "big")


def test_damaged_input_ends() -> None:
    assert list(attributes.read_messages(bytes(32))) == []
    assert attributes.read_attributes(bytes(8)) == {}
    assert attributes.read_attributes(b"\x01") == {}
