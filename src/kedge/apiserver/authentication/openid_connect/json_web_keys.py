"""JSON web keys of an issuer, and the signatures that they verify.

`cryptography` is imported when there are keys to read: most servers have no such issuer.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kedge.apiserver.authentication.jwt import from_base64

MOST_KEYS: Final = 100
"""Keys of one issuer. A token without a key id may have to be checked with each of them."""
RSA_BITS: Final = range(1024, 8193)
_MOST_EXPONENT: Final = 1 << 31
_CURVES: Final = {"P-256": ("ES256", 32), "P-384": ("ES384", 48), "P-521": ("ES512", 66)}
"""By curve: the algorithm that uses it, and the bytes of a coordinate."""
ALGORITHMS: Final = (
    "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
)  # fmt: skip
"""The signature algorithms that Kubernetes accepts."""

Verify = Callable[[str, bytes, bytes], bool]
"""(algorithm, message, signature): whether the key made the signature."""


class JsonWebKey(NamedTuple):
    """A public key of an issuer."""

    id: str
    algorithms: frozenset[str]
    signed: Verify


class _WireKey(msgspec.Struct):
    kty: str = ""
    kid: str = ""
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""


class _WireKeys(msgspec.Struct):
    keys: list[_WireKey] = []


def parse(data: bytes) -> list[JsonWebKey]:
    """Return the keys in a JWKS document; ValueError if it is malformed or has too many.

    Keys of types that no accepted algorithm uses are left out.
    """
    try:
        found = msgspec.json.decode(data, type=_WireKeys).keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"oidc: failed to decode keys: {error}") from None
    if len(found) > MOST_KEYS:
        raise ValueError(f"oidc: the issuer has {len(found)} keys, more than {MOST_KEYS}")
    return [key for wire in found if (key := _key(wire)) is not None]


def _key(wire: _WireKey) -> JsonWebKey | None:
    if wire.kty == "RSA":
        return _rsa_key(wire)
    if wire.kty == "EC" and wire.crv in _CURVES:
        return _elliptic_key(wire)
    return None


def _rsa_key(wire: _WireKey) -> JsonWebKey:
    from cryptography.hazmat.primitives.asymmetric import rsa

    n, e = _number(wire.n), _number(wire.e)
    if n.bit_length() not in RSA_BITS or not 2 < e < _MOST_EXPONENT:
        raise ValueError(f"oidc: invalid RSA key: {n.bit_length()} bits, exponent {e}")
    public = rsa.RSAPublicNumbers(e, n).public_key()
    length = (n.bit_length() + 7) // 8

    def signed(algorithm: str, message: bytes, signature: bytes) -> bool:
        if len(signature) != length:
            return False
        return _holds(lambda: public.verify(signature, message, *_rsa_scheme(algorithm)))

    names = frozenset(name for name in ALGORITHMS if name[0] in "PR")
    return JsonWebKey(wire.kid, names, signed)


def _rsa_scheme(algorithm: str) -> tuple[Any, Any]:
    """Return padding and hash."""
    from cryptography.hazmat.primitives.asymmetric import padding

    digest = _hash(algorithm)
    if algorithm[0] == "R":
        return padding.PKCS1v15(), digest
    return padding.PSS(padding.MGF1(digest), padding.PSS.AUTO), digest


def _elliptic_key(wire: _WireKey) -> JsonWebKey:
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    name, size = _CURVES[wire.crv]
    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    curve = curves[wire.crv]
    public = ec.EllipticCurvePublicNumbers(_number(wire.x), _number(wire.y), curve).public_key()

    def signed(algorithm: str, message: bytes, signature: bytes) -> bool:
        if len(signature) != 2 * size:
            return False
        r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
        der = utils.encode_dss_signature(r, s)
        return _holds(lambda: public.verify(der, message, ec.ECDSA(_hash(algorithm))))

    return JsonWebKey(wire.kid, frozenset({name}), signed)


def _hash(algorithm: str) -> Any:
    from cryptography.hazmat.primitives import hashes

    made = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
    return made[algorithm[2:]]


def _holds(verify: Callable[[], None]) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        verify()
    except InvalidSignature:
        return False
    return True


def _number(text: str) -> int:
    return int.from_bytes(from_base64(text.encode()))


def verifies(
    keys: Sequence[JsonWebKey], key_id: str, algorithm: str, message: bytes, signature: bytes
) -> bool:
    """Whether one of the keys made the signature; without a key id each may have."""
    return any(
        key.signed(algorithm, message, signature)
        for key in keys
        if (not key_id or key.id == key_id) and algorithm in key.algorithms
    )
