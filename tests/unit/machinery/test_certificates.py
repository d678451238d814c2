"""What is read here is what a library that knows all of X.509 reads."""

import hashlib
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.certificates import blocks, end_of, key_hash, names_host, validity

KEY = ec.generate_private_key(ec.SECP256R1())
SPKI = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def certificate(begins: datetime = NOW, ends: datetime = NOW + timedelta(days=1)) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:far" * 3)])
    names = x509.SubjectAlternativeName(
        [x509.DNSName("far"), x509.IPAddress(ipaddress.ip_address("192.0.2.7"))]
    )
    builder = x509.CertificateBuilder(
        name, name, KEY.public_key(), x509.random_serial_number(), begins, ends
    )
    signed = builder.add_extension(names, critical=False).sign(KEY, hashes.SHA256())
    return signed.public_bytes(Encoding.PEM)


MOMENTS = st.datetimes(datetime(1950, 1, 1), datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)


@given(begins=MOMENTS, life=st.integers(1, 10**9))
def test_a_certificate_is_good_from_its_beginning_to_its_end(begins: datetime, life: int) -> None:
    ends = begins + timedelta(seconds=life)
    assert validity(certificate(begins, ends)) == (begins, ends)


def test_a_key_has_the_digest_that_kubeadm_prints() -> None:
    expected = f"sha256:{hashlib.sha256(SPKI).hexdigest()}"
    assert key_hash(certificate()) == expected
    assert key_hash(b"a comment\n" + certificate(ends=NOW + timedelta(days=9))) == expected


def test_a_certificate_names_those_it_is_for() -> None:
    pem = certificate()
    assert names_host(pem, "192.0.2.7")
    assert names_host(pem, "far")
    assert not names_host(pem, "192.0.2.8")
    assert not names_host(pem, "system:node:far")


def test_each_certificate_of_a_file_is_found() -> None:
    one, two = certificate(), certificate()
    assert blocks(one + b"between\n" + two) == [one, two]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        certificate().replace(b"MI", b"MA", 1),
    ],
)
def test_what_is_no_certificate_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"certificate|time data"):
        validity(text)


@pytest.mark.parametrize(
    "text", ["Nov 19 21:59:51 2036 GMT", "Jan  1 00:00:00 2001 GMT", "Dec 31 23:59:59 2049 GMT"]
)
def test_the_end_is_that_of_the_ssl_module(text: str) -> None:
    assert end_of({"notAfter": text}).timestamp() == ssl.cert_time_to_seconds(text)
