"""What a client sees of the cluster's certificates, and what a restart keeps of them."""

import asyncio
import contextlib
import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from kedge.apiserver import pki


class StoppedClock:
    """A clock that shows one moment."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    async def give_way(self) -> None:
        pass


KEY = ec.generate_private_key(ec.SECP256R1())
TODAY = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251


def certificate(directory: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((directory / name).read_bytes())


def connect(identity: pki.ServerIdentity, hostname: str) -> ssl.SSLSocket:
    """A client that trusts the cluster's authority alone, shaking hands as strictly as it can."""
    trusting = ssl.create_default_context(cadata=identity.ca_pem.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()
    answering = threading.Thread(target=shake_hands, args=(identity.context, theirs))
    answering.start()
    try:
        return trusting.wrap_socket(ours, server_hostname=hostname)
    finally:
        answering.join()


def shake_hands(context: ssl.SSLContext, connection: socket.socket) -> None:
    # A client that does not like what it sees hangs up; that is for the client to report.
    with connection, contextlib.suppress(OSError):
        context.wrap_socket(connection, server_side=True).close()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "::1", "localhost", "kubernetes.default.svc", "10.96.0.1", "box.example.com"],
)
def test_a_strict_client_accepts_every_name_of_the_server(tmp_path: Path, host: str) -> None:
    identity = pki.ensure(tmp_path / "pki", ["box.example.com"])
    with connect(identity, host) as client:
        assert client.version() == "TLSv1.3"


def test_a_name_that_was_not_asked_for_is_not_served(tmp_path: Path) -> None:
    identity = pki.ensure(tmp_path / "pki", [])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(identity, "box.example.com")


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    pki.ensure(tmp_path / "pki", [])
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "pki").iterdir()}
    names = ("ca", "server", "node-client")
    assert modes == {f"{name}.crt": 0o644 for name in names} | {
        f"{name}.key": 0o600 for name in names
    }
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700


def test_the_extensions_are_those_strict_verifiers_demand(tmp_path: Path) -> None:
    pki.ensure(tmp_path, [])
    ca, leaf = certificate(tmp_path, "ca.crt"), certificate(tmp_path, "server.crt")
    basic = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage)
    assert (basic.critical, basic.value.ca) == (True, True)
    assert (usage.critical, usage.value.key_cert_sign) == (True, True)
    subject = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == subject.digest
    served = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(served) == [x509.OID_SERVER_AUTH]


def test_a_node_is_known_by_its_certificate_and_serves_with_it(tmp_path: Path) -> None:
    pki.ensure(tmp_path, [])
    pki.ensure_node(tmp_path, "box", ["box", "10.0.0.7"], tmp_path / "box", TODAY)
    leaf = certificate(tmp_path / "box", "node.crt")
    assert leaf.subject.rfc4514_string() == "CN=system:node:box,O=system:nodes"
    uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {x509.OID_CLIENT_AUTH, x509.OID_SERVER_AUTH}
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["box"]


def test_a_node_keeps_its_certificate_until_it_ends_or_the_authority_is_another(
    tmp_path: Path,
) -> None:
    pki.ensure(tmp_path / "a", [])
    pki.ensure(tmp_path / "b", [])
    made = []
    for authority, today in (("a", TODAY), ("a", TODAY), ("b", TODAY)):
        pki.ensure_node(tmp_path / authority, "box", ["box"], tmp_path / "box", today)
        made.append(certificate(tmp_path / "box", "node.crt"))
    assert made[0] == made[1] != made[2]
    pki.ensure_node(tmp_path / "b", "box", ["box"], tmp_path / "box", TODAY + timedelta(days=340))
    assert certificate(tmp_path / "box", "node.crt") != made[2]


def test_a_node_gets_another_certificate_for_the_address_that_it_chose(tmp_path: Path) -> None:
    pki.ensure(tmp_path, [])
    pki.ensure_node(tmp_path, "box", ["box", "127.0.0.1"], tmp_path / "box", TODAY)
    hosts = ["box", "127.0.0.1", "10.244.3.1"]
    pki.ensure_serving(tmp_path, "box", hosts, tmp_path / "box", TODAY)
    leaf = certificate(tmp_path / "box", "serving.crt")
    assert leaf.public_key() == certificate(tmp_path / "box", "node.crt").public_key()
    uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [x509.OID_SERVER_AUTH]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    assert [str(each) for each in addresses] == ["127.0.0.1", "10.244.3.1"]
    pki.ensure_serving(tmp_path, "box", hosts, tmp_path / "box", TODAY)
    assert certificate(tmp_path / "box", "serving.crt") == leaf
    later = TODAY + timedelta(days=340)
    pki.ensure_serving(tmp_path, "box", hosts, tmp_path / "box", later)
    assert certificate(tmp_path / "box", "serving.crt") != leaf


def test_the_server_calls_nodes_as_an_administrator_and_serves_nothing_with_it(
    tmp_path: Path,
) -> None:
    pki.ensure(tmp_path, [])
    caller = certificate(tmp_path, "node-client.crt")
    assert caller.subject.rfc4514_string() == "CN=kube-apiserver-kubelet-client,O=system:masters"
    uses = caller.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [x509.OID_CLIENT_AUTH]


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    pki.ensure(tmp_path, ["box"])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    pki.ensure(tmp_path, ["BOX"])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_new_name_renews_the_serving_certificate_but_not_the_authority(tmp_path: Path) -> None:
    first = pki.ensure(tmp_path, [])
    second = pki.ensure(tmp_path, ["fd00::7"])
    assert second.ca_pem == first.ca_pem
    connect(second, "fd00::7").close()


@pytest.mark.parametrize(("days_left", "renewed"), [(29, True), (31, False)])
def test_a_certificate_near_its_end_is_renewed(
    tmp_path: Path, days_left: int, renewed: bool
) -> None:
    pki.ensure(tmp_path, [], StoppedClock(TODAY))
    before = certificate(tmp_path, "server.crt")
    later = before.not_valid_after_utc - timedelta(days=days_left)
    pki.ensure(tmp_path, [], StoppedClock(later))
    assert (certificate(tmp_path, "server.crt") != before) is renewed


class OneLook(StoppedClock):
    """A clock by which one stretch of sleep passes at once, and the next never."""

    def __init__(self, at: datetime) -> None:
        super().__init__(at)
        self.looked = asyncio.Event()
        self._slept = False

    async def sleep(self, seconds: float) -> None:
        if self._slept:
            self.looked.set()
            await asyncio.Event().wait()
        self._slept = True


async def test_a_server_that_goes_on_shows_the_renewed_certificate(tmp_path: Path) -> None:
    identity = pki.ensure(tmp_path, [], StoppedClock(TODAY - timedelta(days=340)))
    old = certificate(tmp_path, "server.crt")
    clock = OneLook(TODAY)
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(pki.keep_renewed(identity, [], clock))
        await clock.looked.wait()
        keeper.cancel()
    with connect(identity, "localhost") as client:
        shown = x509.load_der_x509_certificate(client.getpeercert(binary_form=True) or b"")
    assert shown.serial_number != old.serial_number
    assert shown.not_valid_after_utc > TODAY + timedelta(days=300)


def test_a_damaged_serving_certificate_is_made_anew(tmp_path: Path) -> None:
    pki.ensure(tmp_path, [])
    (tmp_path / "server.crt").write_bytes(b"rubbish")
    connect(pki.ensure(tmp_path, []), "localhost").close()


def test_a_lost_authority_certificate_comes_back_with_the_key_clients_know(tmp_path: Path) -> None:
    first = pki.ensure(tmp_path, [])
    (tmp_path / "ca.crt").unlink()
    again = pki.ensure(tmp_path, ["box"])
    connect(again._replace(ca_pem=first.ca_pem), "box").close()


def test_an_authority_without_its_key_is_reported_not_replaced(tmp_path: Path) -> None:
    pki.ensure(tmp_path, [])
    (tmp_path / "ca.key").unlink()
    with pytest.raises(pki.AuthorityError, match=r"ca\.key is missing"):
        pki.ensure(tmp_path, [])


def test_an_authority_with_the_key_of_another_is_reported(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        pki.ensure(tmp_path / name, [])
    (tmp_path / "ours" / "ca.key").write_bytes((tmp_path / "theirs" / "ca.key").read_bytes())
    with pytest.raises(pki.AuthorityError, match=r"ca\.key does not belong to ca\.crt"):
        pki.ensure(tmp_path / "ours", [])


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_half_an_authority_that_is_not_readable_is_reported(tmp_path: Path, name: str) -> None:
    pki.ensure(tmp_path, [])
    (tmp_path / name).write_text("-----BEGIN")
    with pytest.raises(pki.AuthorityError, match=f"{name} holds no"):
        pki.ensure(tmp_path, [])


def test_a_client_certificate_of_the_cluster_is_seen(tmp_path: Path) -> None:
    identity = pki.ensure(tmp_path, [])
    assert identity.context.verify_mode is ssl.CERT_OPTIONAL
    assert identity.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert len(identity.context.get_ca_certs()) == 1


def asked(*hosts: str) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "jane")])
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    builder = x509.CertificateSigningRequestBuilder(name)
    if hosts:
        builder = builder.add_extension(names, critical=False)
    # Nobody becomes an authority by asking for it.
    ambition = x509.BasicConstraints(ca=True, path_length=None)
    signed = builder.add_extension(ambition, critical=True).sign(KEY, hashes.SHA256())
    return signed.public_bytes(Encoding.PEM)


def test_a_request_is_signed_with_what_it_may_have(tmp_path: Path) -> None:
    directory = pki.ensure(tmp_path / "pki", []).directory
    uses = ["digital signature", "client auth", "server auth"]
    pem = pki.sign_request(directory, asked("a.example.com"), uses, timedelta(days=1), TODAY)
    issued = x509.load_pem_x509_certificate(pem)
    issued.verify_directly_issued_by(certificate(directory, "ca.crt"))
    assert issued.public_key() == KEY.public_key()
    assert issued.not_valid_before_utc == TODAY - timedelta(minutes=5)
    assert issued.not_valid_after_utc == TODAY + timedelta(days=1) - timedelta(minutes=5)
    found = issued.extensions
    assert not found.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = found.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    extended = found.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(extended) == {x509.OID_CLIENT_AUTH, x509.OID_SERVER_AUTH}
    names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example.com"]


def test_nothing_outlives_the_authority(tmp_path: Path) -> None:
    directory = pki.ensure(tmp_path / "pki", []).directory
    pem = pki.sign_request(directory, asked(), ["client auth"], timedelta(days=9999), TODAY)
    ends = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    assert ends == certificate(directory, "ca.crt").not_valid_after_utc


@pytest.mark.parametrize(("pem", "use"), [(b"nonsense", "client auth"), (asked(), "world peace")])
def test_what_cannot_be_signed_is_refused(tmp_path: Path, pem: bytes, use: str) -> None:
    directory = pki.ensure(tmp_path / "pki", []).directory
    with pytest.raises(ValueError, match=r"."):
        pki.sign_request(directory, pem, [use], timedelta(days=1), TODAY)


def test_front_proxy_has_an_authority_of_its_own_that_is_kept(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = pki.ensure_front_proxy(tmp_path, now)
    kept = (tmp_path / "client.crt").read_bytes()
    assert pki.ensure_front_proxy(tmp_path, now) == first
    assert (tmp_path / "client.crt").read_bytes() == kept
    later = now + timedelta(days=350)
    assert pki.ensure_front_proxy(tmp_path, later) == first
    assert (tmp_path / "client.crt").read_bytes() != kept
    assert stat.S_IMODE((tmp_path / "client.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_damaged_front_proxy_is_replaced(tmp_path: Path, name: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = pki.ensure_front_proxy(tmp_path, now)
    (tmp_path / name).write_text("damaged")
    second = pki.ensure_front_proxy(tmp_path, now)
    assert second != first
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")


@pytest.mark.parametrize("name", ["client.crt", "client.key"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00damaged"])
def test_damaged_client_of_the_front_proxy_is_replaced(
    tmp_path: Path, name: str, content: bytes
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = pki.ensure_front_proxy(tmp_path, now)
    (tmp_path / name).write_bytes(content)
    assert pki.ensure_front_proxy(tmp_path, now) == first
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
