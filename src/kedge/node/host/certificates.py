"""The certificates of a node: asked for, waited for, and renewed in time."""

import base64
import ipaddress
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kedge.api.builtin.resources import RESOURCES
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

log = logging.getLogger(__name__)

REQUESTS: Final = next(each for each in RESOURCES if each.kind == "CertificateSigningRequest")
_FIRST_LOOK: Final = 0.02
_LAST_LOOK: Final = 5.0
_SAY_AFTER: Final = 5.0
_LOOK_EVERY: Final = timedelta(hours=6)
_TRY_AGAIN: Final = 60.0
_SPENT: Final = 0.8
"""How much of a certificate's life may pass before there is a new one."""


class CertificatePurpose(NamedTuple):
    """What a certificate is for, and who signs such."""

    signer: str
    use: str


CLIENT: Final = CertificatePurpose("kubernetes.io/kube-apiserver-client-kubelet", "client auth")
SERVER: Final = CertificatePurpose("kubernetes.io/kubelet-serving", "server auth")


class CertificateDenied(Exception):
    """The cluster will not give the certificate."""


def private_key(path: Path) -> "ec.EllipticCurvePrivateKey":
    """The node's key, made if there is none: it stays the same, so that a certificate can be
    replaced at one stroke."""
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
    """What the node asks to be confirmed: who it is, and where it answers."""
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
    """Ask the cluster for a certificate and wait for it, for as long as nobody has decided."""
    spec = {
        "request": base64.b64encode(signing_request(key, node, hosts)).decode(),
        "signerName": purpose.signer,
        "usages": ["digital signature", purpose.use],
    }
    wanted = Document(metadata=ObjectMeta(generateName="csr-"), content={"spec": spec})
    name = (await client.create(REQUESTS, wanted)).metadata.name
    begun, pause, told = clock.monotonic(), _FIRST_LOOK, False
    while True:
        await clock.sleep(pause)
        status = (await client.get(REQUESTS, name)).content.get("status") or {}
        if certificate := status.get("certificate"):
            return base64.b64decode(certificate)
        for condition in status.get("conditions") or ():
            if condition.get("type") in ("Denied", "Failed"):
                why = condition.get("message") or condition.get("reason") or "no reason is given"
                raise CertificateDenied(
                    f'the request "{name}" for a certificate was refused: {why}'
                )
        if not told and clock.monotonic() - begun > _SAY_AFTER:
            told = True
            log.warning("waiting for approval: kubectl certificate approve %s", name)
        pause = min(pause * 1.5, _LAST_LOOK)


def due(pem: bytes) -> datetime:
    """When a certificate is to be replaced."""
    begins, ends = validity(pem)
    return begins + (ends - begins) * _SPENT


class CertificateRenewal:
    """Sees that the node always has certificates to show."""

    def __init__(
        self, access: ApiAccess, client: Client, clock: Clock, node: str, address: str
    ) -> None:
        self._access = access
        self._client = client
        self._clock = clock
        self._node = node
        self._address = address

    async def run(self, *, asks: bool) -> None:
        """For ever, once the node is registered: what a node is called is only confirmed then.

        `asks` says that nobody on this machine issues what the node shows to its callers.
        """
        while True:
            try:
                await self._renew(asks=asks)
            except (StatusError, Unreachable, CertificateDenied) as error:
                log.warning("certificate not renewed node=%s error=%s", self._node, error)
                await self._clock.sleep(_TRY_AGAIN)
            else:
                await self._clock.sleep(_LOOK_EVERY.total_seconds())

    async def _renew(self, *, asks: bool) -> None:
        pki = self._access.pki
        now = self._clock.now()
        calling = due((pki / CERTIFICATE).read_bytes()) <= now
        # One certificate may have served both ends: the other end must not be left without.
        if (asks or calling or (pki / SERVING).exists()) and not self._serves(now):
            await self._replace(SERVING, SERVER, (self._node, self._address))
        if calling:
            await self._replace(CERTIFICATE, CLIENT, ())

    def _serves(self, now: datetime) -> bool:
        try:
            pem = (self._access.pki / SERVING).read_bytes()
        except OSError:
            return False
        return now < due(pem) and names_host(pem, self._address)

    async def _replace(self, name: str, purpose: CertificatePurpose, hosts: Sequence[str]) -> None:
        pki = self._access.pki
        key = private_key(pki / KEY)
        pem = await obtain(self._client, self._clock, purpose, key, self._node, hosts)
        atomic.write(pki / name, pem)
        self._access.reload()
        log.info("certificate renewed node=%s file=%s", self._node, name)
