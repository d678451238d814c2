"""The formats that a schema may ask of strings, each a test of one text."""

import base64
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from typing import Final
from urllib.parse import urlsplit

from kedge.machinery import durations, names

Test = Callable[[str], bool]


def known(format_: str) -> Test | None:
    """Return the check of a format, or None; dashes in the name are ignored."""
    return _TESTS.get(format_.replace("-", ""))


def recognized(format_: str, type_: str) -> bool:
    """Whether the format means anything for values of a type; if not it is ignored."""
    match type_:
        case "" | "string":
            return known(format_) is not None
        case "integer":
            return format_ in ("int32", "int64")
        case "number":
            return format_ in ("float", "double")
        case _:
            return False


def _matching(expression: str, flags: re.RegexFlag = re.ASCII) -> Test:
    """Return a test; its expression is compiled when it is first used."""
    return lambda text: re.fullmatch(expression, text, flags) is not None


def _is_uri(text: str) -> bool:
    """An absolute URI or an absolute path, as in the first line of an HTTP request."""
    if not text or any(ord(char) <= 0x20 or ord(char) == 0x7F for char in text):
        return False
    if re.search("%(?![0-9A-Fa-f]{2})", text.partition("?")[0]):
        return False
    try:
        parts = urlsplit(text)
        return (parts.port or 0) >= 0 and (text.startswith("/") or bool(parts.scheme))
    except ValueError:
        return False


def _is_email(text: str) -> bool:
    from email.utils import parseaddr

    _, address = parseaddr(text)
    local, at, domain = address.rpartition("@")
    return bool(local and at and domain) and " " not in address


_host_label: Final = _matching(r"[^\W_]([^\W_]|-)*(?<!-)", re.UNICODE)
_top_level: Final = _matching(r"[^\W\d_]{2,63}", re.UNICODE)


def _is_hostname(text: str) -> bool:
    labels = text.split(".")
    if len(text.encode()) > 255 or any(len(label.encode()) > 63 for label in labels):
        return False
    return all(map(_host_label, labels)) and (len(labels) == 1 or _top_level(labels[-1]))


def _is_ipv4(text: str) -> bool:
    return "." in text and _is_address(text)


def _is_ipv6(text: str) -> bool:
    return ":" in text and _is_address(text)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(re.sub(r"(^|[.:])0+(?=[0-9]+\.|[0-9]+$)", r"\1", text))
    except ValueError:
        return False
    return "%" not in text


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not bits.isascii() or not bits.isdigit() or not _is_address(address):
        return False
    return int(bits) <= (128 if ":" in address else 32)


_is_mac: Final = _matching(
    r"([0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}(([:-][0-9a-fA-F]{2}){2}|([:-][0-9a-fA-F]{2}){14})?)"
    r"|([0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){2}(\.[0-9a-fA-F]{4}|(\.[0-9a-fA-F]{4}){7})?)"
)


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    values = [10 if digit == "X" else int(digit) for digit in digits]
    return sum(i * value for i, value in enumerate(values, start=1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum(int(digit) * (3 if i % 2 else 1) for i, digit in enumerate(digits)) % 10 == 0


_card: Final = _matching(
    "4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|6(011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    "|3(0[0-5]|[68][0-9])[0-9]{11}|(2131|1800|35[0-9]{3})[0-9]{11}"
)


def _is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return _card(digits) and (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10 == 0


def _is_base64(text: str) -> bool:
    try:
        return bool(text) and len(base64.b64decode(text, validate=True)) > 0
    except ValueError:
        return False


def _is_date(text: str) -> bool:
    try:
        return bool(re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text)) and bool(
            date.fromisoformat(text)
        )
    except ValueError:
        return False


_is_clock: Final = _matching(
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})", re.UNICODE
)


def _is_datetime(text: str) -> bool:
    day, _, clock = text.lower().partition("t")
    return _is_date(day) and _is_clock(clock)


_scala_unit: Final = re.compile(
    r"[0-9]+\s*(ns|nano[a-z]*|us|µs|micro[a-z]*|ms|milli[a-z]*|s|sec[a-z]*|m|min[a-z]*"
    r"|h|hr|hour[a-z]*|d|day[a-z]*|w|wk|week[a-z]*)(?![a-z])",
    re.IGNORECASE,
).search


def _is_duration(text: str) -> bool:
    """A duration of Go, or one in words such as `3 days`."""
    try:
        durations.parse_duration(text)
    except ValueError:
        return _scala_unit(text) is not None
    return True


_HEX: Final = "[0-9a-fA-F]"


def _uuid(version: str, variant: str) -> Test:
    middle = f"-?{version}{_HEX}{{3}}-?{variant}{_HEX}{{3}}"
    return _matching(f"{_HEX}{{8}}-?{_HEX}{{4}}{middle}-?{_HEX}{{12}}")


_BYTE: Final = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_TESTS: Final[dict[str, Test]] = {
    "bsonobjectid": _matching("[0-9a-fA-F]{24}"),
    "uri": _is_uri,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": _is_mac,
    "uuid": _matching(f"{_HEX}{{8}}(-?{_HEX}{{4}}){{3}}-?{_HEX}{{12}}"),
    "uuid3": _uuid("3", _HEX),
    "uuid4": _uuid("4", "[89abAB]"),
    "uuid5": _uuid("5", "[89abAB]"),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": _matching("[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}"),
    "hexcolor": _matching("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matching(rf"rgb\({_BYTE},{_BYTE},{_BYTE}\)"),
    "byte": _is_base64,
    "password": lambda text: True,
    "date": _is_date,
    "duration": _is_duration,
    "datetime": _is_datetime,
    "k8sshortname": lambda text: len(text) <= 63 and not names.dns_label(text),
    "k8slongname": lambda text: len(text) <= 253 and not names.dns_subdomain(text),
}
