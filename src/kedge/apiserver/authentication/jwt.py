"""JSON web tokens as this server makes them, and no others: one key, one algorithm, one spelling.

Whatever can be found wrong with a token without its key is found before any cryptography is done.
"""

import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from kedge.apiserver.authentication.refusals import CredentialRefused

ALGORITHM: Final = "RS256"
LEEWAY: Final = timedelta(minutes=1)
"""The largest accepted difference between the clocks of issuer and verifier."""
LONGEST: Final = 16 << 10
"""Bytes of a token that is looked at."""

_is_compact = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+").fullmatch
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_STANDARD: Final = bytes.maketrans(b"+/", b"-_")


class TokenKey(Protocol):
    """A key that signs tokens and verifies its own signatures."""

    @property
    def id(self) -> str:
        """The name that tokens give it; empty as long as there is no key."""
        ...

    @property
    def signature_bytes(self) -> int: ...

    def sign(self, message: bytes) -> bytes: ...

    def signed(self, message: bytes, signature: bytes) -> bool: ...


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a header may say: nothing that asks for another key or another reading."""

    alg: str
    kid: str
    typ: str = "JWT"


_header = msgspec.json.Decoder(_Header)


class Unverified(NamedTuple):
    """A token that has the form of one; nothing in it can be trusted yet."""

    payload: bytes
    """Its claims, as JSON."""
    key_id: str
    signed: bytes
    """The bytes that the signature covers."""
    signature: bytes

    def check(self, key: TokenKey) -> None:
        """Raise Refused unless the key has signed it."""
        if not key.id or self.key_id != key.id:
            raise CredentialRefused("invalid signature, no keys found")
        if len(self.signature) != key.signature_bytes:
            raise CredentialRefused("invalid signature")
        if not key.signed(self.signed, self.signature):
            raise CredentialRefused("invalid signature")


def parse(token: bytes) -> Unverified | None:
    """The parts of a token; None if it is no token that could ever be valid."""
    if len(token) > LONGEST or not _is_compact(token):
        return None
    signed, _, signature = token.rpartition(b".")
    first, _, second = signed.partition(b".")
    try:
        header = _header.decode(from_base64(first))
        if header.alg != ALGORITHM or header.typ != "JWT":
            return None
        return Unverified(from_base64(second), header.kid, signed, from_base64(signature))
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None


def sign(key: TokenKey, claims: Any) -> str:
    """A token with these claims."""
    header = {"alg": ALGORITHM, "kid": key.id}
    parts = [to_base64(msgspec.json.encode(part, order="sorted")) for part in (header, claims)]
    signed = b".".join(parts)
    return b".".join((signed, to_base64(key.sign(signed)))).decode()


def from_base64(text: bytes) -> bytes:
    """Decode base64url without padding; raises ValueError unless it is in canonical form."""
    padded = text.translate(_URL_SAFE) + b"=" * (-len(text) % 4)
    try:
        data = binascii.a2b_base64(padded, strict_mode=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
    if to_base64(data) != text:
        # The last character may have bits to spare: a second spelling of the same bytes.
        raise ValueError("not canonical base64url")
    return data


def to_base64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False).translate(_STANDARD).rstrip(b"=")


Seconds = int | float
"""A moment as tokens have it: seconds since 1970."""


def check_times(now: datetime, *, expires: Seconds, begins: Seconds, issued: Seconds) -> None:
    """Raise Refused unless a token holds at this moment, give or take a minute."""
    if moment(begins) > now + LEEWAY:
        raise CredentialRefused("service account token is not valid yet")
    if moment(expires) < now - LEEWAY:
        raise CredentialRefused("service account token has expired")
    if moment(issued) > now + LEEWAY:
        raise CredentialRefused("service account token is issued in the future")


def moment(seconds: Seconds) -> datetime:
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (OverflowError, OSError, ValueError):
        raise CredentialRefused("service account token names no possible time") from None
