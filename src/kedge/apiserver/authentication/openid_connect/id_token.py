"""ID tokens: their parts, and whether they hold for an issuer now."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from kedge.apiserver.authentication import jwt
from kedge.apiserver.authentication.openid_connect.json_web_keys import ALGORITHMS
from kedge.apiserver.authentication.refusals import CredentialRefused

LEEWAY: Final = timedelta(minutes=1)
"""How early a token may be used, before its `nbf`."""

Claims = dict[str, Any]


class _IdTokenHeader(msgspec.Struct):
    alg: str = ""
    kid: str = ""
    crit: Any = None


class _UntrustedClaims(msgspec.Struct):
    iss: str = ""


_header = msgspec.json.Decoder(_IdTokenHeader)
_issued = msgspec.json.Decoder(_UntrustedClaims)


class IdToken(NamedTuple):
    """A token that has the form of one; nothing in it can be trusted yet."""

    algorithm: str
    key_id: str
    signed: bytes
    signature: bytes
    payload: bytes


def untrusted_issuer(token: bytes) -> str:
    """Return the issuer that the token names; empty if it is no token."""
    parts = token.split(b".")
    if len(parts) != 3 or len(token) > jwt.LONGEST:
        return ""
    try:
        return _issued.decode(jwt.from_base64(parts[1])).iss
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return ""


def parse(token: bytes) -> IdToken:
    """Return the parts of a token; CredentialRefused unless its algorithm is accepted."""
    signed, _, signature = token.rpartition(b".")
    first, _, second = signed.partition(b".")
    try:
        header = _header.decode(jwt.from_base64(first))
        parts = jwt.from_base64(second), jwt.from_base64(signature)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        raise CredentialRefused("oidc: verify token: oidc: malformed jwt") from None
    if header.crit is not None:
        raise CredentialRefused("oidc: verify token: oidc: malformed jwt: unsupported crit header")
    if header.alg not in ALGORITHMS:
        raise CredentialRefused(
            "oidc: verify token: oidc: id token signed with unsupported algorithm, expected"
            f" {_listed(ALGORITHMS)} got {_quoted(header.alg)}"
        )
    return IdToken(header.alg, header.kid, signed, parts[1], parts[0])


def claims_of(token: IdToken) -> Claims:
    """Return the claims of a token, with numbers as CEL sees those of JSON."""
    try:
        claims = json.loads(token.payload, parse_int=float, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise CredentialRefused("oidc: verify token: oidc: failed to unmarshal claims") from None
    if not isinstance(claims, dict):
        raise CredentialRefused("oidc: verify token: oidc: failed to unmarshal claims")
    return claims


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def check(claims: Claims, audiences: Sequence[str], now: datetime) -> datetime:
    """Return when the token expires; CredentialRefused if it does not hold now or for others."""
    given = claims.get("aud")
    meant_for = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if not any(audience in audiences for audience in meant_for if isinstance(audience, str)):
        raise CredentialRefused(_other_audience(audiences, meant_for))
    expires = _moment(claims.get("exp", 0.0))
    if expires < now:
        why = f"oidc: token is expired (Token Expiry: {expires:%Y-%m-%d %H:%M:%S} +0000 UTC)"
        raise CredentialRefused(f"oidc: verify token: {why}")
    begins = claims.get("nbf")
    if begins is not None and _moment(begins) > now + LEEWAY:
        why = "oidc: current time before the nbf (not before) time"
        raise CredentialRefused(f"oidc: verify token: {why}")
    return expires


def _other_audience(audiences: Sequence[str], given: list[Any]) -> str:
    if len(audiences) == 1:
        expected = f"oidc: expected audience {_quoted(audiences[0])}"
    else:
        expected = f"oidc: expected audience in {_listed(sorted(audiences))}"
    return f"oidc: verify token: {expected} got {_listed([str(each) for each in given])}"


def _moment(seconds: object) -> datetime:
    if not isinstance(seconds, float):
        raise CredentialRefused("oidc: verify token: oidc: failed to unmarshal claims")
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (OverflowError, OSError, ValueError):
        raise CredentialRefused("oidc: verify token: token names no possible time") from None


def _listed(values: Sequence[str]) -> str:
    return f"[{' '.join(map(_quoted, values))}]"


def _quoted(text: str) -> str:
    return json.dumps(text[:256], ensure_ascii=False)
