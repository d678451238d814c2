"""The certificates of a node: requested, awaited, and renewed before they expire."""

import base64
import ipaddress
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kedge.api.model import Document, ObjectMeta
from kedge.client.client import Client
from kedge.client.transport import Unreachable
from kedge.machinery import atomic
from kedge.machinery.certificates import names_host, validity
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.host.api_access import CERTIFICATE, KEY, SERVING, ApiAccess

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from kedge.api.resource import Resource

log = logging.getLogger(__name__)

_FIRST_POLL_SECONDS: Final = 0.02
_LAST_POLL_SECONDS: Final = 5.0
_LOG_AFTER_SECONDS: Final = 5.0
_CHECK_INTERVAL: Final = timedelta(hours=6)
_RETRY_SECONDS: Final = 60.0
_ISSUED_POLL_SECONDS: Final = 0.5
_ISSUED_TRIES: Final = 120
_RENEWAL_FRACTION: Final = 0.8
"""The fraction of a certificate's lifetime after which it is renewed."""


class CertificatePurpose(NamedTuple):
    """The signer and the key usage of a certificate."""

    signer: str
    use: str


CLIENT: Final = CertificatePurpose("kubernetes.io/kube-apiserver-client-kubelet", "client auth")
SERVER: Final = CertificatePurpose("kubernetes.io/kubelet-serving", "server auth")


class CertificateDenied(Exception):
    """The cluster has denied the certificate."""


def private_key(path: Path) -> "ec.EllipticCurvePrivateKey":
    """Return the node's key, created if it does not exist. The key never changes, so that replacing
    one file replaces a certificate atomically."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if path.exists():
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    atomic.write(path, pem)
    return key


def signing_request(key: "ec.EllipticCurvePrivateKey", node: str, hosts: Sequence[str]) -> bytes:
    """Return a certificate signing request with the node's name and its addresses."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder(subject)
    if hosts:
        names = [_general_name(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _general_name(host: str):  # type: ignore[no-untyped-def]
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


async def obtain(
    client: Client,
    clock: Clock,
    purpose: CertificatePurpose,
    key: "ec.EllipticCurvePrivateKey",
    node: str,
    hosts: Sequence[str] = (),
) -> bytes:
    """Request a certificate and wait until the request is approved or denied. Raises
    CertificateDenied."""
    spec = {
        "request": base64.b64encode(signing_request(key, node, hosts)).decode(),
        "signerName": purpose.signer,
        "usages": ["digital signature", purpose.use],
    }
    request = Document(metadata=ObjectMeta(generateName="csr-"), content={"spec": spec})
    name = (await client.create(_signing_requests(), request)).metadata.name
    begun, pause, is_logged = clock.monotonic(), _FIRST_POLL_SECONDS, False
    while True:
        await clock.sleep(pause)
        status = (await client.get(_signing_requests(), name)).content.get("status") or {}
        if certificate := status.get("certificate"):
            return base64.b64decode(certificate)
        for condition in status.get("conditions") or ():
            if condition.get("type") in ("Denied", "Failed"):
                why = condition.get("message") or condition.get("reason") or "no reason given"
                raise CertificateDenied(
                    f'the request "{name}" for a certificate was refused: {why}'
                )
        if not is_logged and clock.monotonic() - begun > _LOG_AFTER_SECONDS:
            is_logged = True
            log.warning("waiting for approval: kubectl certificate approve %s", name)
        pause = min(pause * 1.5, _LAST_POLL_SECONDS)


def renewal_time(pem: bytes) -> datetime:
    """Return when a certificate is due for renewal."""
    begins, ends = validity(pem)
    return begins + (ends - begins) * _RENEWAL_FRACTION


class CertificateRenewal:
    """Renews the certificates of a node."""

    def __init__(
        self, access: ApiAccess, client: Client, clock: Clock, node: str, address: str
    ) -> None:
        self._access = access
        self._client = client
        self._clock = clock
        self._node = node
        self._address = address

    async def run(self, *, requests_serving: bool) -> None:
        """Run until cancelled, after registration: the signer approves only certificates of nodes
        that exist.

        `requests_serving` means that the serving certificate has to be requested, because the
        machine does not issue it.
        """
        if not requests_serving:
            await self._load_issued()
        while True:
            try:
                await self._renew(requests_serving=requests_serving)
            except (StatusError, Unreachable, CertificateDenied) as error:
                log.warning("certificate not renewed node=%s error=%s", self._node, error)
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                await self._clock.sleep(_CHECK_INTERVAL.total_seconds())

    async def _load_issued(self) -> None:
        """Load the certificate with the node's address, which the server beside the node issues as
        soon as the node is registered, unless the node started with one."""
        if names_host((self._access.pki / CERTIFICATE).read_bytes(), self._address):
            return
        for _ in range(_ISSUED_TRIES):
            if self._is_serving_valid(self._clock.now()):
                self._access.reload()
                return
            await self._clock.sleep(_ISSUED_POLL_SECONDS)
        log.warning("no certificate issued for address=%s node=%s", self._address, self._node)

    async def _renew(self, *, requests_serving: bool) -> None:
        pki = self._access.pki
        now = self._clock.now()
        renews_client = renewal_time((pki / CERTIFICATE).read_bytes()) <= now
        # The client certificate may also be the serving certificate, whose callers still need one.
        if (
            requests_serving or renews_client or (pki / SERVING).exists()
        ) and not self._is_serving_valid(now):
            await self._replace(SERVING, SERVER, (self._node, self._address))
        if renews_client:
            await self._replace(CERTIFICATE, CLIENT, ())

    def _is_serving_valid(self, now: datetime) -> bool:
        try:
            pem = (self._access.pki / SERVING).read_bytes()
        except OSError:
            return False
        return now < renewal_time(pem) and names_host(pem, self._address)

    async def _replace(self, name: str, purpose: CertificatePurpose, hosts: Sequence[str]) -> None:
        pki = self._access.pki
        key = private_key(pki / KEY)
        pem = await obtain(self._client, self._clock, purpose, key, self._node, hosts)
        atomic.write(pki / name, pem)
        self._access.reload()
        log.info("certificate renewed node=%s file=%s", self._node, name)


@cache
def _signing_requests() -> "Resource[Document]":
    # Not above: a node needs the table of published kinds only when its certificate ends.
    from kedge.api.builtin.resources import RESOURCES

    return next(each for each in RESOURCES if each.kind == "CertificateSigningRequest")
