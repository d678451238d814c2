"""CertificateSigningRequests: approves those of nodes, signs approved ones, deletes old ones.

A certificate for anybody but a node is signed only once a person has approved it.
"""

import asyncio
import base64
import binascii
import ipaddress
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from kedge.api.builtin.resources import RESOURCES, REVIEWS
from kedge.api.builtin.service_networks import API_SERVICE_ADDRESS, LOOPBACK_SERVICES, on_loopback
from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.model import Document, Model, ObjectMeta
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import sketches
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time, parse_time
from kedge.machinery.errors import StatusError

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger(__name__)

SignRequest = Callable[[bytes, Sequence[str], timedelta, datetime], bytes]
"""Makes a certificate of a request, its uses, its life and the time; ValueError if it cannot."""

REQUESTS: Final = next(each for each in RESOURCES if each.kind == "CertificateSigningRequest")
_ACCESS: Final = next(each for each in REVIEWS if each.kind == "SubjectAccessReview")

CLIENT: Final = "kubernetes.io/kube-apiserver-client"
NODE_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
NODE_SERVING: Final = "kubernetes.io/kubelet-serving"

LONGEST: Final = timedelta(days=365)
SHORTEST: Final = timedelta(minutes=10)
_LOOK_EVERY: Final = timedelta(hours=1)
_DECIDED_LIFE: Final = timedelta(hours=1)
_PENDING_LIFE: Final = timedelta(hours=24)
_USER: Final = "system:node:"
_GROUP: Final = "system:nodes"
_SERVER_NAMES: Final = frozenset(
    (
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        API_SERVICE_ADDRESS,
        *(on_loopback(API_SERVICE_ADDRESS, network) for network in LOOPBACK_SERVICES),
    )
)
"""The names of the API server, which a node's certificate may not have."""


class CertificateSigningRequestSpec(Model):
    """The requester's part of a request, and the requester's identity."""

    request: str = ""
    signerName: str = ""  # noqa: N815
    expirationSeconds: int | None = None  # noqa: N815
    usages: Sequence[str] = ()
    username: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = {}


class CertificateSigningRequestCondition(Model):
    """One condition of a request: Approved, Denied or Failed."""

    type: str = ""
    status: str = ""
    lastUpdateTime: str = ""  # noqa: N815


class CertificateSigningRequestStatus(Model):
    """The conditions and the certificate of a request."""

    certificate: str = ""
    conditions: Sequence[CertificateSigningRequestCondition] = ()


class CertificateSigningRequest(Model):
    """A CertificateSigningRequest, reduced to the fields that this controller reads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CertificateSigningRequestSpec = CertificateSigningRequestSpec()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()

    def has(self, kind: str) -> bool:
        """Whether there is a condition of this type."""
        return any(each.type == kind for each in self.status.conditions)

    @property
    def failed(self) -> bool:
        return any(c.type == "Failed" and c.status in ("", "True") for c in self.status.conditions)


class CertificateNames(NamedTuple):
    """The names in a certificate request."""

    common_name: str
    organizations: tuple[str, ...]
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """The kinds of further names: email, URI or whatever else."""


def requested_names(request: CertificateSigningRequest) -> CertificateNames:
    """Return the names in a certificate request; raise ValueError if it is malformed."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_csr(base64.b64decode(request.spec.request))
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    names = _names(found)
    known = (x509.DNSName, x509.IPAddress)
    return CertificateNames(
        "".join(_parts(found, x509.NameOID.COMMON_NAME)[-1:]),
        tuple(_parts(found, x509.NameOID.ORGANIZATION_NAME)),
        tuple(n.value for n in names if isinstance(n, x509.DNSName)),
        tuple(str(n.value) for n in names if isinstance(n, x509.IPAddress)),
        tuple(_KINDS.get(type(n).__name__, "Other") for n in names if not isinstance(n, known)),
    )


_KINDS: Final = {"RFC822Name": "Email", "UniformResourceIdentifier": "URI"}


def _parts(request: "x509.CertificateSigningRequest", number: Any) -> list[str]:
    return [str(part.value) for part in request.subject.get_attributes_for_oid(number)]


def _names(request: "x509.CertificateSigningRequest") -> "Iterable[x509.GeneralName]":
    from cryptography import x509

    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()


# Requirements of the signers, with upstream's messages.


def unfit(signer: str, wanted: CertificateNames, uses: Iterable[str]) -> str:
    """Why a request does not fit its signer; empty if it does."""
    match signer:
        case "kubernetes.io/kube-apiserver-client-kubelet":
            return _unfit_node_client(wanted, set(uses))
        case "kubernetes.io/kubelet-serving":
            return _unfit_node_serving(wanted, set(uses))
        case _:
            return _unfit_client(tuple(uses))


def _unfit_node_client(wanted: CertificateNames, uses: set[str]) -> str:
    if wanted.organizations != (_GROUP,):
        return f"subject organization is not {_GROUP}"
    named = [("DNS", wanted.dns_names), ("IP", wanted.addresses)]
    for kind in ("DNS", "Email", "IP", "URI", "Other"):
        if kind in wanted.others or any(kind == k and values for k, values in named):
            return f"{kind} subjectAltNames are not allowed"
    if not wanted.common_name.startswith(_USER):
        return f"subject common name does not begin with {_USER}"
    return _wrong_uses(uses, "client auth")


def _unfit_node_serving(wanted: CertificateNames, uses: set[str]) -> str:
    if wanted.organizations != (_GROUP,):
        return f"subject organization is not {_GROUP}"
    if not wanted.dns_names and not wanted.addresses:
        return "DNS or IP subjectAltName is required"
    if wanted.others:
        return f"{wanted.others[0]} subjectAltNames are not allowed"
    if why := _wrong_uses(uses, "server auth"):
        return why
    if not wanted.common_name.startswith(_USER):
        return f"subject common name does not begin with {_USER}"
    return ""


def _wrong_uses(uses: set[str], purpose: str) -> str:
    if uses - {"key encipherment"} == {"digital signature", purpose}:
        return ""
    wanted = sorted({"digital signature", "key encipherment", purpose})
    return f"usages did not match [{' '.join(wanted)}]"


def _unfit_client(uses: Sequence[str]) -> str:
    for use in uses:
        if use not in ("digital signature", "key encipherment", "client auth"):
            return f"invalid usage for client certificate: {use}"
    if "client auth" not in uses:
        return "missing required usage for client certificate: client auth"
    return ""


def own_names(wanted: CertificateNames, found: Node) -> bool:
    """Whether a node asks for its own names and addresses and for no others."""
    told = found.status.addresses
    hosts = {each.address for each in told if each.type == "Hostname"} & {found.metadata.name}
    addresses = {
        _canonical(each.address) for each in told if each.type in ("InternalIP", "ExternalIP")
    }
    names = {*wanted.dns_names, *wanted.addresses}
    return (
        {*wanted.dns_names} <= hosts
        and {*wanted.addresses} <= addresses
        and not names & _SERVER_NAMES
    )


def _canonical(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def lifetime(seconds: int | None) -> timedelta:
    """How long a certificate is to be good for."""
    if seconds is None:
        return LONGEST
    return min(max(timedelta(seconds=seconds), SHORTEST), LONGEST)


def outdated(request: CertificateSigningRequest, now: datetime) -> bool:
    """Whether a request has been there for long enough."""
    status = request.status
    if not status.conditions:
        return _older(request.metadata.creationTimestamp, _PENDING_LIFE, now)
    for each in status.conditions:
        if each.type in ("Denied", "Failed") and _older(each.lastUpdateTime, _DECIDED_LIFE, now):
            return True
        life = _DECIDED_LIFE if status.certificate else _PENDING_LIFE
        if each.type == "Approved" and _older(each.lastUpdateTime, life, now):
            return True
    return request.has("Approved") and _expired(status.certificate, now)


def _older(since: str, life: timedelta, now: datetime) -> bool:
    return bool(since) and now - parse_time(since) > life


def _expired(certificate: str, now: datetime) -> bool:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(base64.b64decode(certificate))
    except ValueError:
        return False
    return now > found.not_valid_after_utc


# The writes.


class CertificateSigningController:
    """Approves the requests of nodes, and signs approved requests."""

    def __init__(self, client: Client, sign: SignRequest, clock: Clock) -> None:
        self._client = client
        self._sign = sign
        self._clock = clock
        self._requests: Cache[CertificateSigningRequest] = Cache()
        view = sketches(REQUESTS, CertificateSigningRequest)
        self._informer = Informer(client, view, self._requests, clock)
        self._loop = ControllerLoop("certificate-signing", self.reconcile, clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            self._requests.listen(self._loop.add)
            for each in self._requests:
                self._loop.add(Key("", each.metadata.name))
            tasks.create_task(self._loop.run())
            tasks.create_task(self._look_again())

    async def reconcile(self, key: Key) -> None:
        request = self._requests.get(key.name)
        if request is None or request.status.certificate or request.failed:
            return
        if request.spec.signerName not in (CLIENT, NODE_CLIENT, NODE_SERVING):
            return
        if request.has("Denied"):
            return
        try:
            if request.has("Approved"):
                await self._issue(request)
            elif message := await self._reason_to_approve(request):
                await self._add_condition(request, "approval", "Approved", "AutoApproved", message)
        except StatusError as error:
            # Gone, or changed: the cache will tell.
            if error.code not in (404, 409):
                raise

    async def _reason_to_approve(self, request: CertificateSigningRequest) -> str:
        """Return the message of an automatic approval; empty if a person must decide."""
        spec = request.spec
        wanted = requested_names(request)
        if spec.signerName == CLIENT or unfit(spec.signerName, wanted, spec.usages):
            return ""
        own = spec.username == wanted.common_name
        if spec.signerName == NODE_SERVING:
            if own and _GROUP in spec.groups and await self._is_of(wanted):
                return "Auto approving kubelet serving certificate for the node's own addresses."
            return ""
        if own and await self._allows(spec, "selfnodeclient"):
            return "Auto approving self kubelet client certificate after SubjectAccessReview."
        if await self._allows(spec, "nodeclient"):
            return "Auto approving kubelet client certificate after SubjectAccessReview."
        return ""

    async def _is_of(self, wanted: CertificateNames) -> bool:
        try:
            found = await self._client.get(node.RESOURCE, wanted.common_name.removeprefix(_USER))
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return own_names(wanted, found)

    async def _allows(self, spec: CertificateSigningRequestSpec, subresource: str) -> bool:
        attributes = {
            "group": REQUESTS.group,
            "resource": REQUESTS.plural,
            "subresource": subresource,
            "verb": "create",
            "version": "*",
        }
        who = {"user": spec.username, "uid": spec.uid, "groups": list(spec.groups)}
        extra = {name: list(values) for name, values in spec.extra.items()}
        review = {**who, "extra": extra, "resourceAttributes": attributes}
        answer = await self._client.create(_ACCESS, Document(content={"spec": review}))
        return bool(answer.content["status"].get("allowed"))

    async def _issue(self, request: CertificateSigningRequest) -> None:
        spec = request.spec
        if why := unfit(spec.signerName, requested_names(request), spec.usages):
            await self._add_condition(request, "status", "Failed", "SignerValidationFailure", why)
            return
        pem = base64.b64decode(spec.request)
        life, now = lifetime(spec.expirationSeconds), self._clock.now()
        made = self._sign(pem, spec.usages, life, now)
        certificate = base64.b64encode(made).decode()
        await self._write(request, "status", {"certificate": certificate})
        log.info("certificate issued name=%s user=%s", request.metadata.name, spec.username)

    async def _add_condition(
        self,
        request: CertificateSigningRequest,
        subresource: str,
        kind: str,
        reason: str,
        message: str,
    ) -> None:
        added = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastUpdateTime": format_time(self._clock.now()),
        }
        await self._write(request, subresource, {}, added)

    async def _write(
        self,
        request: CertificateSigningRequest,
        subresource: str,
        status: Mapping[str, Any],
        *conditions: Any,
    ) -> None:
        found = await self._client.get(REQUESTS, request.metadata.name)
        if found.metadata.uid != request.metadata.uid:
            # Nothing that was decided about one request is written into another of its name.
            return
        known = found.content.get("status") or {}
        together = [*(known.get("conditions") or ()), *conditions]
        whole = {**known, **status, "conditions": together}
        changed = replace(found, content={**found.content, "status": whole})
        await self._client.update(REQUESTS, changed, subresource=subresource)

    async def _look_again(self) -> None:
        """Delete what is old, and think anew about what waits: rights may have changed."""
        while True:
            now = self._clock.now()
            for request in list(self._requests):
                if outdated(request, now):
                    await self._delete(request)
                elif not request.status.conditions:
                    self._loop.add(Key("", request.metadata.name))
            await self._clock.sleep(_LOOK_EVERY.total_seconds())

    async def _delete(self, request: CertificateSigningRequest) -> None:
        meta = request.metadata
        options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
        try:
            await self._client.delete(REQUESTS, meta.name, options=options)
        except (StatusError, OSError) as error:
            if not (isinstance(error, StatusError) and error.code in (404, 409)):
                log.warning("old request not deleted name=%s error=%s", meta.name, error)
