"""Reads fields of certificates without the cryptography library, which is slow to import.

Nothing here says whether a certificate can be trusted: that is for TLS to find out.
"""

import base64
import binascii
import hashlib
import ipaddress
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

_BLOCK: Final = re.compile(
    # Possessive, so that text that is not a certificate is not scanned again.
    rb"-----BEGIN CERTIFICATE-----\s*+([A-Za-z0-9+/=\s]++)-----END CERTIFICATE-----"
)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_DNS_NAME: Final = 0x82
_ADDRESS: Final = 0x87
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)


class Validity(NamedTuple):
    """The period in which a certificate is valid."""

    begins: datetime
    ends: datetime


class _Value(NamedTuple):
    """One DER value: its tag, all its bytes, and its content."""

    tag: int
    whole: bytes
    content: bytes


def end_of(certificate: Mapping[str, Any]) -> datetime:
    """Return the end of a certificate in the form of the ssl module, whose own function for this
    (`ssl.cert_time_to_seconds`) uses `strptime`."""
    month, day, clock, year, _ = certificate["notAfter"].split()
    hour, minute, second = (int(part) for part in clock.split(":"))
    number = _MONTHS.index(month) + 1
    return datetime(int(year), number, int(day), hour, minute, second, tzinfo=UTC)


def validity(pem: bytes) -> Validity:
    """How long the first certificate is good; ValueError if there is none."""
    begins, ends, *_ = _values(_body(pem)[3].content)
    return Validity(_time(begins), _time(ends))


def key_hash(pem: bytes) -> str:
    """Return the public key hash of the first certificate, as kubeadm writes it."""
    return f"sha256:{hashlib.sha256(_body(pem)[5].whole).hexdigest()}"


def fingerprint(pem: bytes) -> str:
    """Return the SHA-256 hash of the first certificate; ValueError if there is none."""
    return hashlib.sha256(_der(pem)).hexdigest()


def names_host(pem: bytes, host: str) -> bool:
    """Whether the first certificate is valid for this name or address."""
    try:
        packed, tag = ipaddress.ip_address(host).packed, _ADDRESS
    except ValueError:
        packed, tag = host.encode(), _DNS_NAME
    return bytes((tag, len(packed))) + packed in _der(pem)


def blocks(pem: bytes) -> list[bytes]:
    """Each certificate of a file, in PEM."""
    return [found[0] + b"\n" for found in _BLOCK.finditer(pem)]


def _der(pem: bytes) -> bytes:
    found = _BLOCK.search(pem)
    if found is None:
        raise ValueError("there is no certificate in it")
    try:
        return base64.b64decode(found[1])
    except binascii.Error as error:
        raise ValueError(f"the certificate is damaged: {error}") from error


def _body(pem: bytes) -> list[_Value]:
    """Serial number, algorithm, issuer, validity, subject, key and what comes after them."""
    try:
        certificate = _values(_der(pem))[0]
        parts = _values(_values(certificate.content)[0].content)
    except IndexError as error:
        raise ValueError("the certificate is damaged") from error
    body = parts[1:] if parts and parts[0].tag == _VERSION else parts
    if len(body) < 6:
        raise ValueError("the certificate is damaged")
    return body


def _values(data: bytes) -> list[_Value]:
    found, at = [], 0
    while at < len(data):
        length, head = data[at + 1], 2
        if length & 0x80:
            head += length & 0x7F
            length = int.from_bytes(data[at + 2 : at + head], "big")
        end = at + head + length
        if end > len(data):
            raise ValueError("the certificate is cut off")
        found.append(_Value(data[at], data[at:end], data[at + head : end]))
        at = end
    return found


def _time(value: _Value) -> datetime:
    text = value.content.decode("latin-1")
    if value.tag == _UTC_TIME:
        # Two digits for the year: those from 50 on are of the last century.
        text = ("19" if text >= "50" else "20") + text
    # Not with `strptime`, whose first call takes 3 ms and 300 KB.
    digits = text.removesuffix("Z")
    if len(digits) != 14 or digits == text or not digits.isdecimal():
        raise ValueError(f"{text!r} is no time of a certificate")
    year, rest = int(digits[:4]), [int(digits[at : at + 2]) for at in range(4, 14, 2)]
    month, day, hour, minute, second = rest
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
