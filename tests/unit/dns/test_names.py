import pytest

from kedge.dns import names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a.bc", b"\1a\2bc\0"),
        ("A.Bc.", b"\1a\2bc\0"),
        ("", None),
        (".", None),
        ("a..b", None),
        ("ä.b", None),
        ("x" * 63 + ".b", b"\x3f" + b"x" * 63 + b"\1b\0"),
        ("x" * 64 + ".b", None),
        (".".join(["x" * 49] * 5), b"".join([b"\x31" + b"x" * 49] * 5) + b"\0"),
        (".".join(["x" * 50] * 5), None),
    ],
)
def test_a_name_in_wire_form(text: str, name: bytes | None) -> None:
    assert names.from_text(text) == name


def test_labels_of_a_name() -> None:
    assert names.to_labels(b"\1a\2bc\0") == (b"a", b"bc")
    assert names.to_labels(b"\0") == ()
    assert names.from_labels((b"a", b"bc")) == b"\1a\2bc\0"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("4.3.2.1.in-addr.arpa", bytes([1, 2, 3, 4])),
        ("3.2.1.in-addr.arpa", None),
        ("x.3.2.1.in-addr.arpa", None),
        ("256.3.2.1.in-addr.arpa", None),
        ("5.4.3.2.1.in-addr.arpa", None),
        ("1." + "0." * 30 + "f.ip6.arpa", bytes([0xF0]) + bytes(14) + b"\1"),
        ("1." + "0." * 30 + "g.ip6.arpa", None),
        ("1." + "0." * 29 + "00.f.ip6.arpa", None),
        ("1." + "0." * 29 + "f.ip6.arpa", None),
        ("4.3.2.1.example.arpa", None),
    ],
)
def test_addresses_in_reverse(text: str, address: bytes | None) -> None:
    name = names.from_text(text)
    assert name is not None
    assert names.address_of_reverse(names.to_labels(name)) == address


@pytest.mark.parametrize(
    ("address", "label"),
    [
        ("10.244.0.5", b"10-244-0-5"),
        ("5678:abcd::1", b"5678-abcd--1"),
        ("::1", b"0--1"),
        ("fd00::", b"fd00--0"),
    ],
)
def test_the_label_of_an_address(address: str, label: bytes) -> None:
    assert names.dashed(address) == label


@pytest.mark.parametrize(
    ("label", "address"),
    [
        (b"10-244-0-5", bytes([10, 244, 0, 5])),
        (b"5678-abcd--1", bytes.fromhex("5678abcd") + bytes(11) + b"\1"),
        (b"1-2-3", None),
        (b"1-2-3-400", None),
        (b"web", None),
        (b"\xff-1-1-1", None),
    ],
)
def test_the_address_of_a_label(label: bytes, address: bytes | None) -> None:
    assert names.address_of_dashed(label) == address
