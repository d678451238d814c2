"""The key that signs service account tokens: made once per cluster, and kept with its other keys.

`cryptography` is imported only when there is something to sign or to check: a start stays fast.
"""

import base64
import hashlib
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kedge.machinery import atomic, reserve_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import rsa

BITS: Final = 2048
_PUBLIC_TAIL: Final = 256 + 5
"""Bytes at the end of a public key: the part of the modulus that the smallest key has, and
65537."""


class SigningKeyError(Exception):
    """The key is damaged; replacing it silently would void every token that it has signed."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"the key for service account tokens in {path} cannot be used: {why}. Put it back from"
            " a copy of the directory, or remove sa.key and sa.pub: the next start makes new ones,"
            " and tokens signed before are void"
        )


class _KeyPair(NamedTuple):
    private: "rsa.RSAPrivateKey"
    public: "rsa.RSAPublicKey"
    id: str


class SigningKey:
    """An RSA key on disk: `sa.key`, with its public half beside it in `sa.pub`."""

    def __init__(self, directory: Path) -> None:
        self._private = directory / "sa.key"
        self._public = directory / "sa.pub"
        self._lock = Lock()
        self._pair: _KeyPair | None = None

    def check(self) -> None:
        """Raise SigningKeyError if the private key is missing or does not match the public key.

        This runs at every start without loading the cryptography library: the public key, a
        modulus and an exponent, is contained byte for byte in the private key.
        """
        private, public = (_content(path) for path in (self._private, self._public))
        if not private and not public:
            return
        if not private:
            raise SigningKeyError(self._private, "it is missing or empty")
        if not _der(private):
            raise SigningKeyError(self._private, "it holds no private key")
        if public and (_der(public) or b"no key")[-_PUBLIC_TAIL:] not in _der(private):
            raise SigningKeyError(self._private, "it does not belong to sa.pub")

    @property
    def is_made(self) -> bool:
        """Whether both halves are on disk, the private one for its owner only."""
        halves = (_content(path) for path in (self._private, self._public))
        return all(halves) and not self._private.stat().st_mode & 0o077

    @property
    def ready(self) -> bool:
        """Whether signing will not have to wait for a key to be read or made."""
        return self._pair is not None

    def prepare(self) -> None:
        """Read the key, or make one; takes up to half a second, so best called in a thread."""
        self._made()

    @property
    def id(self) -> str:
        """The key's name; empty if no key was ever made, in which case nothing was signed."""
        if self._pair is None and not self._private.exists():
            return ""
        return self._made().id

    @property
    def signature_bytes(self) -> int:
        return self._made().public.key_size // 8

    def sign(self, message: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric import padding
        from cryptography.hazmat.primitives.hashes import SHA256

        return self._made().private.sign(message, padding.PKCS1v15(), SHA256())

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Whether this key made the signature."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import padding
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            self._made().public.verify(signature, message, padding.PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        return True

    def published(self) -> dict[str, Any]:
        """The public half as a JSON web key."""
        pair = self._made()
        numbers = pair.public.public_numbers()
        return {
            "use": "sig",
            "kty": "RSA",
            "kid": pair.id,
            "alg": "RS256",
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }

    def _made(self) -> _KeyPair:
        if self._pair is None:
            with self._lock:
                if self._pair is None:
                    self._pair = _pair(self._load() or self._found_or_made())
        return self._pair

    def _found_or_made(self) -> "rsa.RSAPrivateKey":
        """Return the key that another process makes at this moment, or make one."""
        self._private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic.one_at_a_time(self._private.parent):
            return self._load() or self._make()

    def _load(self) -> "rsa.RSAPrivateKey | None":
        from cryptography.hazmat.primitives.asymmetric import rsa
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            pem = self._private.read_bytes()
        except FileNotFoundError:
            return None
        if self._private.stat().st_mode & 0o077:
            self._private.chmod(0o600)
        try:
            # To find out whether its factors are prime takes 25 ms, for which the first pod would
            # wait. The signature below tells a damaged key.
            key = load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=True)
        except (ValueError, TypeError) as error:
            raise SigningKeyError(self._private, "it holds no private key") from error
        if not isinstance(key, rsa.RSAPrivateKey):
            raise SigningKeyError(self._private, "it is not an RSA key")
        if key.key_size < BITS:
            raise SigningKeyError(self._private, f"it has {key.key_size} bits, fewer than {BITS}")
        if not _is_sound(key):
            raise SigningKeyError(self._private, "it holds no private key")
        self._write_public(key)
        return key

    def _make(self) -> "rsa.RSAPrivateKey":
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        reserve_files.with_room(
            self._private.parent.parent, lambda: atomic.write(self._private, pem, mode=0o600)
        )
        self._write_public(key)
        return key

    def _write_public(self, key: "rsa.RSAPrivateKey") -> None:
        from cryptography.hazmat.primitives import serialization

        pem = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        if not self._public.exists() or self._public.read_bytes() != pem:
            atomic.write(self._public, pem, mode=0o600)


def _pair(private: "rsa.RSAPrivateKey") -> _KeyPair:
    from cryptography.hazmat.primitives import serialization

    public = private.public_key()
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _KeyPair(private, public, _base64(hashlib.sha256(der).digest()))


def _is_sound(private: "rsa.RSAPrivateKey") -> bool:
    """Return whether the key makes signatures that its public half accepts."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        signature = private.sign(b"", padding.PKCS1v15(), SHA256())
        private.public_key().verify(signature, b"", padding.PKCS1v15(), SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _der(pem: bytes) -> bytes:
    """Return the content of a PEM file; empty if it is not a PEM file."""
    lines = pem.strip().splitlines()
    if len(lines) < 3 or not lines[0].startswith(b"-----BEGIN") or b"-----END" not in lines[-1]:
        return b""
    try:
        return base64.b64decode(b"".join(lines[1:-1]), validate=True)
    except ValueError:
        return b""


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
