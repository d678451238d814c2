"""A context trusts the certificates that it was given, and what they have signed."""

import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kedge.machinery.tls_trust import trusting

KEYS = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
NAMES = ["authority", "lower-authority", "server"]


def signed(index: int) -> bytes:
    """Return one of three certificates, of which each has signed the next."""
    signer = max(0, index - 1)
    name, issuer = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAMES[each])])
        for each in (index, signer)
    )
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=name,
        public_key=KEYS[index].public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime(2020, 1, 1, tzinfo=UTC),
        not_valid_after=datetime(2200, 1, 1, tzinfo=UTC),
    )
    alternative = x509.SubjectAlternativeName([x509.DNSName(NAMES[index])])
    constraints = x509.BasicConstraints(ca=index < 2, path_length=None)
    builder = builder.add_extension(alternative, critical=False)
    made = builder.add_extension(constraints, critical=True).sign(KEYS[signer], SHA256())
    return made.public_bytes(Encoding.PEM)


CHAIN = [signed(index) for index in range(3)]


def shake_hands(client: ssl.SSLContext, directory: Path) -> None:
    """Connect a client to a server that shows its own certificate and that of its signer."""
    key = KEYS[2].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "server.pem").write_bytes(key + CHAIN[2] + CHAIN[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname="server"),
        context.wrap_bio(up, down, server_side=True),
    ]
    for end in (*ends, ends[0]):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("index", range(3), ids=NAMES)
def test_every_certificate_of_the_chain_can_be_the_trusted_one(index: int, tmp_path: Path) -> None:
    note = "Ausgestellt für Tests\n".encode()
    shake_hands(trusting(note + CHAIN[index]), tmp_path)


def test_others_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another = ec.generate_private_key(ec.SECP256R1())
    monkeypatch.setattr(sys.modules[__name__], "KEYS", [KEYS[0], another, KEYS[2]])
    # Another authority with the same name.
    for context in (trusting(b""), trusting(signed(1))):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(context, tmp_path)
    with pytest.raises(ValueError, match="Empty certificate data"):
        trusting(b"no certificate")
