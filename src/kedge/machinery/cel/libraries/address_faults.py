"""The faults of addresses, in the words of Go's netip."""

from typing import Final

from kedge.machinery.errors import quoted

_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DIGITS: Final = frozenset("0123456789")
_FIELDS: Final = 8


def address_fault(text: str) -> str:
    """Return what is wrong with an address that cannot be parsed."""
    kind = next((char for char in text if char in ".:%"), "")
    if kind == ".":
        return _fault_of_four(text)
    if kind == ":":
        return _fault_of_six(text)
    return "missing IPv6 address" if kind == "%" else "unable to parse IP"


def _at(why: str, rest: str) -> str:
    return f"{why} (at {quoted(rest)})" if rest else why


def _fault_of_four(text: str) -> str:
    """Return the first fault of an IPv4 address."""
    value = digits = dots = 0
    for place, char in enumerate(text):
        if char in _DIGITS:
            if digits == 1 and value == 0:
                return "IPv4 field has octet with leading zero"
            value, digits = value * 10 + int(char), digits + 1
            if value > 255:
                return "IPv4 field has value >255"
        elif char != ".":
            return _at("unexpected character", text[place:])
        elif place in (0, len(text) - 1) or text[place - 1] == ".":
            return _at("IPv4 field must have at least one digit", text[place:])
        elif dots == 3:
            return "IPv4 address too long"
        else:
            value, digits, dots = 0, 0, dots + 1
    return "IPv4 address too short"


def _fault_of_six(text: str) -> str:
    """Return the first fault of an IPv6 address."""
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        return "zone must be a non-empty string"
    fields, has_gap = 0, rest.startswith("::")
    rest = rest.removeprefix("::")
    while fields < _FIELDS and rest:
        length = _hex_length(rest)
        if fault := _fault_of_field(rest, length):
            return fault
        if rest[length : length + 1] == ".":
            return _fault_of_embedded(rest, fields, has_gap=has_gap)
        fields, rest = fields + 1, rest[length:]
        if not rest:
            break
        if fault := _fault_of_colon(rest, has_gap=has_gap):
            return fault
        rest = rest[1:]
        if rest.startswith(":"):
            has_gap, rest = True, rest[1:]
    if rest:
        return _at("trailing garbage after address", rest)
    if fields < _FIELDS:
        return "address string too short"
    return "the :: must expand to at least one field of zeros"


def _hex_length(text: str) -> int:
    return next((i for i, char in enumerate(text) if char not in _HEX), len(text))


def _fault_of_field(rest: str, length: int) -> str:
    if length == 0:
        return _at("each colon-separated field must have at least one digit", rest)
    return _at("each group must have 4 or less digits", rest) if length > 4 else ""


def _fault_of_colon(rest: str, *, has_gap: bool) -> str:
    if rest[0] != ":":
        return _at("unexpected character, want colon", rest)
    if len(rest) == 1:
        return _at("colon must be followed by more characters", rest)
    return _at("multiple :: in address", rest[1:]) if has_gap and rest[1] == ":" else ""


def _fault_of_embedded(rest: str, fields: int, *, has_gap: bool) -> str:
    if not has_gap and fields != 6:
        why = "embedded IPv4 address must replace the final 2 fields of the address"
        return _at(why, rest)
    if fields > 6:
        why = "too many hex fields to fit an embedded IPv4 at the end of the address"
        return _at(why, rest)
    return _fault_of_four(rest)
