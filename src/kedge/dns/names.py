"""Domain names in wire form: each label behind its length, and a zero byte at the end.

Lower case is `name.lower()`: lengths are at most 63, and letters begin at 65.
"""

import ipaddress
from typing import Final

LONGEST_LABEL: Final = 63
LONGEST_NAME: Final = 255
_IPV4_SUFFIX: Final = (b"in-addr", b"arpa")
_IPV6_SUFFIX: Final = (b"ip6", b"arpa")
_HEX: Final = frozenset(b"0123456789abcdef")

Labels = tuple[bytes, ...]


def from_labels(labels: Labels) -> bytes:
    """Return the name with these labels."""
    return b"".join(bytes((len(each),)) + each for each in labels) + b"\0"


def from_text(text: str) -> bytes | None:
    """Return a fully qualified name in lower case; None if it is not a name."""
    try:
        labels = tuple(text.lower().rstrip(".").encode("ascii").split(b"."))
    except UnicodeEncodeError:
        return None
    if not all(0 < len(each) <= LONGEST_LABEL for each in labels):
        return None
    name = from_labels(labels)
    return name if len(name) <= LONGEST_NAME else None


def to_labels(name: bytes) -> Labels:
    """Return the labels of a valid name."""
    labels, at = [], 0
    while size := name[at]:
        labels.append(name[at + 1 : at + 1 + size])
        at += size + 1
    return tuple(labels)


def address_of_reverse(labels: Labels) -> bytes | None:
    """Return the address of a name in in-addr.arpa or ip6.arpa; None for other names."""
    if labels[-2:] == _IPV4_SUFFIX and len(labels) == 6:
        return _octets(labels[3::-1])
    if labels[-2:] == _IPV6_SUFFIX and len(labels) == 34:
        return _nibbles(labels[31::-1])
    return None


def _octets(labels: Labels) -> bytes | None:
    try:
        return ipaddress.IPv4Address(b".".join(labels).decode("ascii")).packed
    except ValueError:
        return None


def _nibbles(labels: Labels) -> bytes | None:
    digits = b"".join(labels)
    if len(digits) != 32 or not _HEX.issuperset(digits):
        return None
    return bytes.fromhex(digits.decode("ascii"))


def dashed(address: str) -> bytes:
    """Return the label of an address: 10-244-0-5, or 5678-abcd--1 for IPv6."""
    text = address.replace(".", "-").replace(":", "-").lower()
    # A label neither begins nor ends with a dash.
    text = f"0{text}" if text.startswith("-") else text
    return (f"{text}0" if text.endswith("-") else text).encode("ascii", "replace")


def address_of_dashed(label: bytes) -> bytes | None:
    """Return the address that `dashed` made the label from; None if there is none."""
    try:
        text = label.decode("ascii")
        if text.count("-") == 3 and text.replace("-", "").isdigit():
            return ipaddress.IPv4Address(text.replace("-", ".")).packed
        return ipaddress.IPv6Address(text.replace("-", ":")).packed
    except ValueError:
        return None
