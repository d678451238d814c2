"""The cluster's own certificate authority, and the certificate with which its server answers.

`cryptography` is imported only to issue: checking what is there takes `ssl` alone, and a start
without new certificates spares the time and memory.
"""

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kedge.api.builtin.service_networks import API_SERVICE_ADDRESS, LOOPBACK_SERVICES, on_loopback
from kedge.apiserver.aggregation.front_proxy import CLIENT_NAME
from kedge.apiserver.config import ServingFiles
from kedge.machinery import atomic
from kedge.machinery.certificates import end_of, names_host, validity
from kedge.machinery.clock import Clock, SystemClock
from kedge.machinery.tls_trust import trust

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

log = logging.getLogger(__name__)

OWN_HOSTS: Final = (
    "127.0.0.1",
    "::1",
    API_SERVICE_ADDRESS,
    *(on_loopback(API_SERVICE_ADDRESS, network) for network in LOOPBACK_SERVICES),
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_SERVING: Final = "serving.crt"
"""The certificate with which a node answers beside the one with which it started."""
_CA_LIFE: Final = timedelta(days=3650)
_SERVING_LIFE: Final = timedelta(days=365)
_RENEW_BEFORE: Final = timedelta(days=30)
_LOOK_EVERY: Final = timedelta(hours=12)
# A client whose clock is a little behind must not find the certificate to be of the future.
_BACKDATED: Final = timedelta(minutes=5)
_LONG: Final = timedelta(hours=8)
_SYSTEM_CLOCK: Final = SystemClock()

Use = Literal["serverAuth", "clientAuth"]


class AuthorityError(Exception):
    """The cluster's authority is damaged; replacing it silently would lock its clients out."""

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(
            f"the certificate authority in {directory} cannot be used: {why}. Nothing was changed."
            " Put ca.crt and ca.key back from a copy of the directory, or begin anew with 'kedge"
            " down --purge'"
        )


class ServerIdentity(NamedTuple):
    """The certificates of the server."""

    ca_pem: bytes
    """The certificate authority with which clients verify the server."""
    context: ssl.SSLContext
    """Ready to serve with; client certificates of this cluster are checked if one is offered."""
    directory: Path
    """Where the keys are: those of ca, server and node-client, each a .crt and a .key."""


def ensure(directory: Path, hosts: Sequence[str], clock: Clock = _SYSTEM_CLOCK) -> ServerIdentity:
    """The identity kept in the directory, made or renewed as needed to serve these hosts too."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    machine = socket.gethostname()
    wanted = [*OWN_HOSTS, *([machine] if machine.isascii() and machine else []), *hosts]
    with atomic.one_at_a_time(directory):
        if _is_empty(directory / "ca.crt"):
            _make_authority(directory, clock.now())
        _check_authority(directory)
        # The certificate to call nodes with is renewed with the serving one.
        is_whole = _serves(directory, "server", wanted, clock.now())
        if not is_whole or not _calls(directory, "node-client"):
            _issue(directory, wanted, clock.now())
    ca_pem = (directory / "ca.crt").read_bytes()
    return ServerIdentity(ca_pem, _server_context(directory, "server"), directory)


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True


def _check_authority(directory: Path) -> None:
    """Raise AuthorityError unless the authority's key exists and matches its certificate.

    This runs at every start and not when the first certificate is signed, so that the
    administrator sees the error.
    """
    for file in ("ca.crt", "ca.key"):
        if _is_empty(directory / file):
            raise AuthorityError(directory, f"{file} is missing or empty")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            directory / "ca.crt", directory / "ca.key"
        )
    except ssl.SSLError as error:
        reason = error.reason or ""
        mismatch = "MISMATCH" in reason
        why = "ca.key does not belong to ca.crt" if mismatch else _unreadable_half(directory)
        raise AuthorityError(directory, why) from error


def _unreadable_half(directory: Path) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(directory / "ca.crt")
    except ssl.SSLError:
        return "ca.crt holds no certificate"
    return "ca.key holds no private key"


async def keep_renewed(identity: ServerIdentity, hosts: Sequence[str], clock: Clock) -> None:
    """For ever: renew the serving certificate before it ends, under a server that goes on."""
    directory = identity.directory
    while True:
        await clock.sleep(_LOOK_EVERY.total_seconds())
        try:
            await asyncio.to_thread(ensure, directory, hosts, clock)
            # Connections that are made from now on see it; those that are open need not.
            identity.context.load_cert_chain(directory / "server.crt", directory / "server.key")
        except (OSError, AuthorityError) as error:
            log.error("serving certificate not renewed error=%s", error)


def _server_context(directory: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
    context.load_verify_locations(directory / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


def listening_context(identity: ServerIdentity, files: ServingFiles | None) -> ssl.SSLContext:
    """Return the context in which a server listens: with its own certificates, or with those that
    its starter brought along."""
    if files is None:
        return identity.context
    context = identity.context
    if files.certificate is not None and files.key is not None:
        # Not that of the identity, into which renewed certificates are loaded.
        context = _server_context(identity.directory, "server")
        context.load_cert_chain(files.certificate, files.key)
    if files.client_authority is not None:
        trust(context, files.client_authority.read_bytes())
    return context


def _serves(directory: Path, name: str, hosts: Iterable[str], now: datetime) -> bool:
    """Whether the certificate is whole, ours, lasts a while and names all the hosts."""
    try:
        certificate = _as_seen_by_a_client(directory, name)
    except (OSError, ssl.SSLError):
        return False
    ends = end_of(certificate)
    names = {_canonical(value) for _, value in certificate["subjectAltName"]}
    return now + _RENEW_BEFORE < ends and all(_canonical(host) in names for host in hosts)


def _calls(directory: Path, name: str) -> bool:
    """Whether there is a certificate to call others with, and its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
            directory / f"{name}.crt", directory / f"{name}.key"
        )
    except (OSError, ssl.SSLError):
        return False
    return True


def _as_seen_by_a_client(directory: Path, name: str) -> dict[str, Any]:
    """Return the certificate that a client sees if it trusts only our authority."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.load_verify_locations(directory / "ca.crt")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(down, up)
    server = _server_context(directory, name).wrap_bio(up, down, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return dict(client.getpeercert() or {})


def _canonical(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def ensure_front_proxy(directory: Path, now: datetime) -> bytes:
    """Return the authority of the front proxy, with whose certificate the server forwards requests
    to extension servers; made or renewed as needed.

    It is another authority than the cluster's: who has a certificate of the front proxy may act as
    any user, so that no signing request may lead to one.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic.one_at_a_time(directory):
        _ensure_front_proxy(directory, now)
        return (directory / "ca.crt").read_bytes()


def _ensure_front_proxy(directory: Path, now: datetime) -> None:
    try:
        _check_authority(directory)
    except AuthorityError:
        # Unlike the cluster's, it can be replaced: extension servers read the new one from their
        # ConfigMap.
        for file in ("ca.crt", "ca.key", "client.crt", "client.key"):
            (directory / file).unlink(missing_ok=True)
        _make_authority(directory, now, "kedge-front-proxy-ca")
    known = directory / "client.crt"
    if not _calls(directory, "client") or not _is_lasting(known.read_bytes(), (), now):
        name = _name(CLIENT_NAME)
        _save(directory, "client", _issued(directory, name, ("clientAuth",), (), now))


def _make_authority(directory: Path, now: datetime, common: str = "kedge-ca") -> None:
    """Make ca.crt, and ca.key unless it is there: clients go on trusting a key they know."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    kept = not _is_empty(directory / "ca.key")
    key = _authority_key(directory) if kept else ec.generate_private_key(ec.SECP256R1())
    name = _name(common)
    builder = _certificate(name, name, key.public_key(), now - _BACKDATED, now + _CA_LIFE)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    _save(directory, "ca", Issued(_pem(certificate), _private_pem(key)))


class Issued(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def ensure_node(
    directory: Path, node: str, hosts: Sequence[str], theirs: Path, now: datetime
) -> None:
    """See that a node of this machine has what it shows to the server and to those who call it."""
    with atomic.one_at_a_time(directory):
        _ensure_node(directory, node, hosts, theirs, now)


def _ensure_node(
    directory: Path, node: str, hosts: Sequence[str], theirs: Path, now: datetime
) -> None:
    trusted = (directory / "ca.crt").read_bytes()
    theirs.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = theirs / "ca.crt"
    if known.exists() and known.read_bytes() == trusted and _serves(theirs, "node", hosts, now):
        return
    subject = _name(f"system:node:{node}", organization="system:nodes")
    issued = _issued(directory, subject, ("clientAuth", "serverAuth"), hosts, now)
    atomic.write(known, trusted, mode=0o644)
    # The node's serving certificate belongs to the old key.
    (theirs / _SERVING).unlink(missing_ok=True)
    _save(theirs, "node", issued)


def ensure_serving(
    directory: Path, node: str, hosts: Sequence[str], theirs: Path, now: datetime
) -> None:
    """See that a node of this machine has a certificate that names these hosts, beside the one
    with which it started. Both belong to the same key, so that one file replaces the other."""
    if is_serving(theirs, hosts, now):
        return
    from cryptography import x509

    own = x509.load_pem_x509_certificate((theirs / "node.crt").read_bytes())
    pem = _signed(directory, own.subject, own.public_key(), ("serverAuth",), hosts, now)
    atomic.write(theirs / _SERVING, pem, mode=0o644)


def is_serving(theirs: Path, hosts: Sequence[str], now: datetime) -> bool:
    """Return whether a node has a second certificate that names these hosts, for a while yet."""
    serving = theirs / _SERVING
    return serving.exists() and _is_lasting(serving.read_bytes(), hosts, now)


def _is_lasting(pem: bytes, hosts: Sequence[str], now: datetime) -> bool:
    ends = validity(pem).ends
    return now + _RENEW_BEFORE < ends and all(names_host(pem, host) for host in hosts)


def sign_request(
    directory: Path, csr_pem: bytes, uses: Sequence[str], lifetime: timedelta, now: datetime
) -> bytes:
    """Sign a certificate request; subject, names and key come from the request.

    `uses` are named as in a CertificateSigningRequest. Raises ValueError if it cannot be signed.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    request = x509.load_pem_x509_csr(csr_pem)
    if not request.is_signature_valid:
        raise ValueError("the request is not signed by the key that it names")
    ca, ca_key = _authority(directory)
    # A short life is not shortened further by the time that the beginning is set back.
    ends = now + lifetime - (_BACKDATED if lifetime >= _LONG else timedelta())
    ends = min(ends, ca.not_valid_after_utc)
    builder = _certificate(
        request.subject, ca.subject, request.public_key(), now - _BACKDATED, ends
    ).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    basic, extended = _asked_uses(uses)
    if basic is not None:
        builder = builder.add_extension(basic, critical=True)
    if extended is not None:
        builder = builder.add_extension(extended, critical=False)
    if names := _asked_names(request):
        critical = not request.subject.rdns
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=critical)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    return _pem(builder.sign(ca_key, hashes.SHA256()))


_BASIC_USES: Final = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED_USES: Final = {
    "any": "2.5.29.37.0",
    "server auth": "1.3.6.1.5.5.7.3.1",
    "client auth": "1.3.6.1.5.5.7.3.2",
    "code signing": "1.3.6.1.5.5.7.3.3",
    "email protection": "1.3.6.1.5.5.7.3.4",
    "s/mime": "1.3.6.1.5.5.7.3.4",
    "ipsec end system": "1.3.6.1.5.5.7.3.5",
    "ipsec tunnel": "1.3.6.1.5.5.7.3.6",
    "ipsec user": "1.3.6.1.5.5.7.3.7",
    "timestamping": "1.3.6.1.5.5.7.3.8",
    "ocsp signing": "1.3.6.1.5.5.7.3.9",
    "microsoft sgc": "1.3.6.1.4.1.311.10.3.3",
    "netscape sgc": "2.16.840.1.113730.4.1",
}


def _asked_uses(
    uses: Sequence[str],
) -> "tuple[x509.KeyUsage | None, x509.ExtendedKeyUsage | None]":
    from cryptography import x509

    basic = {_BASIC_USES[use] for use in uses if use in _BASIC_USES}
    numbers = dict.fromkeys(_EXTENDED_USES[use] for use in uses if use in _EXTENDED_USES)
    if unknown := [use for use in uses if use not in _BASIC_USES and use not in _EXTENDED_USES]:
        raise ValueError(f"unrecognized usage values: {unknown}")
    usage = x509.KeyUsage(**{name: name in basic for name in _BASIC_USES.values()})
    extended = [x509.ObjectIdentifier(number) for number in sorted(numbers)]
    return usage if basic else None, x509.ExtendedKeyUsage(extended) if extended else None


def _asked_names(request: "x509.CertificateSigningRequest") -> "list[x509.GeneralName]":
    from cryptography import x509

    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    kinds = (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)
    return [name for name in found.value if isinstance(name, kinds)]


def _issue(directory: Path, hosts: Iterable[str], now: datetime) -> None:
    """The server's certificate, and the one with which it calls the nodes."""
    ours = _issued(directory, _name("kube-apiserver"), ("serverAuth",), hosts, now)
    _save(directory, "server", ours)
    caller = _name("kube-apiserver-kubelet-client", organization="system:masters")
    _save(directory, "node-client", _issued(directory, caller, ("clientAuth",), (), now))


def _issued(
    directory: Path,
    subject: "x509.Name",
    uses: Sequence[Use],
    hosts: Iterable[str],
    now: datetime,
) -> Issued:
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    pem = _signed(directory, subject, key.public_key(), uses, hosts, now)
    return Issued(pem, _private_pem(key))


def _signed(
    directory: Path,
    subject: "x509.Name",
    key: "CertificatePublicKeyTypes",
    uses: Sequence[Use],
    hosts: Iterable[str],
    now: datetime,
) -> bytes:
    """Return a certificate for a key, in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    ca, ca_key = _authority(directory)
    ends = min(now + _SERVING_LIFE, ca.not_valid_after_utc)
    builder = _certificate(subject, ca.subject, key, now - _BACKDATED, ends)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    purposes = {"serverAuth": x509.OID_SERVER_AUTH, "clientAuth": x509.OID_CLIENT_AUTH}
    usage = x509.ExtendedKeyUsage([purposes[use] for use in uses])
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(_key_identifier(key), critical=False)
        .add_extension(issuer, critical=False)
    )
    if names := _general_names(hosts):
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pem(builder.sign(ca_key, hashes.SHA256()))


def _key_identifier(key: "CertificatePublicKeyTypes") -> "x509.SubjectKeyIdentifier":
    from cryptography import x509

    return x509.SubjectKeyIdentifier.from_public_key(key)


def _authority(directory: Path) -> tuple["x509.Certificate", "ec.EllipticCurvePrivateKey"]:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
    except ValueError as error:
        raise AuthorityError(directory, "ca.crt holds no certificate") from error
    key = _authority_key(directory)
    if key.public_key() != certificate.public_key():
        raise AuthorityError(directory, "ca.key does not belong to ca.crt")
    return certificate, key


def _authority_key(directory: Path) -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
    except FileNotFoundError as error:
        raise AuthorityError(directory, "ca.key is missing") from error
    except (ValueError, TypeError) as error:
        raise AuthorityError(directory, "ca.key holds no private key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AuthorityError(directory, "ca.key is not an elliptic-curve key")
    return key


def _certificate(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "CertificatePublicKeyTypes",
    begins: datetime,
    ends: datetime,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=begins,
        not_valid_after=ends,
    )


def _name(common: str, organization: str = "") -> "x509.Name":
    from cryptography import x509

    parts = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common)]
    if organization:
        parts.insert(0, x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _key_usage(*, authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_names(hosts: Iterable[str]) -> "list[x509.GeneralName]":
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(map(_canonical, hosts)):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _save(directory: Path, name: str, issued: Issued) -> None:
    atomic.write(directory / f"{name}.key", issued.key, mode=0o600)
    atomic.write(directory / f"{name}.crt", issued.certificate, mode=0o644)


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private_pem(key: "ec.EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
