"""Certificates of hosts, from Secrets."""

import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from kedge.apiserver import pki
from kedge.client.informer import Cache, Key
from kedge.gateway.certificates import KEPT, Certificates
from kedge.gateway.objects import GatewayMeta, SecretInfo

UNKNOWN_CURVE = b"""\
-----BEGIN CERTIFICATE-----
MIIBKjCB9qADAgECAhQ7Eg17GmdNyCz6SA9p5G5QD3XZkTAKBggqhkjOPQQDAjAQ
MQ4wDAYDVQQDDAVhLmNvbTAgFw0yNjExMTcxMjM4MDFaGA8yMTI2MTAyNDEyMzgw
MVowEDEOMAwGA1UEAwwFYS5jb20wMjAQBgcqhkjOPQIBBgUrgQQABgMeAAST6Glc
UPVjalHNZGKHjle355CnETjkrm/dgG8Fo1MwUTAdBgNVHQ4EFgQUkExigru7sDJZ
I0nE/eLqt+mG/tswHwYDVR0jBBgwFoAUkExigru7sDJZI0nE/eLqt+mG/tswDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgMjADAgAg4WWfYfS+tfPmKQAyvSSQIO
MniudEWL8641ud0AcCo=
-----END CERTIFICATE-----
"""
"""A certificate for a key on the curve secp112r1."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    pki.ensure(directory, ("a.com",))
    return directory


def secret(name: str, keys: Path, version: str = "1", **data: bytes) -> SecretInfo:
    content = {
        "tls.crt": (keys / "server.crt").read_bytes(),
        "tls.key": (keys / "server.key").read_bytes(),
        **{key.replace("_", "."): value for key, value in data.items()},
    }
    meta = GatewayMeta(name=name, namespace="n", resource_version=version)
    encoded = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return SecretInfo(metadata=meta, data=encoded)


def certificates(keys: Path, *secrets: SecretInfo) -> tuple[Certificates, Cache[SecretInfo]]:
    """Every host `X.com` has the Secret X."""
    cache: Cache[SecretInfo] = Cache()
    cache.replace(secrets)

    def secret_of(host: str) -> Key | None:
        return Key("n", host.removesuffix(".com")) if host.endswith(".com") else None

    made = Certificates(secret_of, cache, keys / "server.crt", keys / "server.key")
    return made, cache


def test_a_host_with_a_secret_has_a_context_until_the_secret_changes(keys: Path) -> None:
    made, cache = certificates(keys, secret("a", keys))
    first = made.context("a.com")
    assert isinstance(first, ssl.SSLContext)
    assert made.context("a.com") is first
    cache.put(secret("a", keys, version="2"))
    assert made.context("a.com") not in (None, first)
    assert made.context("b.com") is None
    assert made.context("a.org") is None


@pytest.mark.parametrize("data", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_a_broken_secret_is_as_good_as_none(keys: Path, data: bytes) -> None:
    made, _ = certificates(keys, secret("a", keys, tls_crt=data))
    assert made.context("a.com") is None


def test_only_so_many_contexts_are_kept(keys: Path) -> None:
    broken = [secret(str(number), keys, tls_crt=b"") for number in range(KEPT + 10)]
    made, _ = certificates(keys, *broken)
    for number in range(KEPT + 10):
        made.context(f"{number}.com")
    assert len(made._contexts) == KEPT


def self_signed(bits: int) -> tuple[bytes, bytes]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.com")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=9999))
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return made.public_bytes(pem), key.private_bytes(pem, form, plain)


def test_a_key_that_makes_handshakes_long_is_not_used(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(2048)
    made, _ = certificates(keys, secret("a", keys, tls_crt=certificate, tls_key=key))
    assert made.context("a.com") is not None
    monkeypatch.setattr("kedge.gateway.certificates.MOST_RSA_BITS", 1024)
    made, _ = certificates(keys, secret("a", keys, tls_crt=certificate, tls_key=key))
    assert made.context("a.com") is None


def test_a_chain_that_is_too_long_is_not_used(keys: Path) -> None:
    chain = (keys / "server.crt").read_bytes() * 200
    made, _ = certificates(keys, secret("a", keys, tls_crt=chain))
    assert made.context("a.com") is None


@pytest.mark.parametrize(
    "form", [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL]
)
def test_no_password_of_an_encrypted_key_is_tried(
    keys: Path, monkeypatch: pytest.MonkeyPatch, form: serialization.PrivateFormat
) -> None:
    plain = (keys / "server.key").read_bytes()
    key = serialization.load_pem_private_key(plain, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"x")
    )
    monkeypatch.setattr("kedge.gateway.certificates._load", None)
    made, _ = certificates(keys, secret("a", keys, tls_key=encrypted))
    assert made.context("a.com") is None


def test_a_certificate_with_an_unknown_curve_is_not_used(keys: Path) -> None:
    made, _ = certificates(keys, secret("a", keys, tls_crt=UNKNOWN_CURVE))
    assert made.context("a.com") is None
