"""Who gets which certificate: asked for through a server, decided by the controller."""

import base64
import ipaddress
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import convert

from kedge.apiserver import joining, pki
from kedge.controllers.access.certificate_signing import (
    CLIENT,
    NODE_CLIENT,
    NODE_SERVING,
    CertificateSigningController,
    CertificateSigningRequest,
    lifetime,
    outdated,
)
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import TOKEN, LocalServer

URL = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
BOOTSTRAPPER = {
    "Impersonate-User": "system:bootstrap:abcdef",
    "Impersonate-Group": "system:bootstrappers",
}
KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def node(name: str) -> dict[str, str]:
    return {"Impersonate-User": f"system:node:{name}", "Impersonate-Group": "system:nodes"}


def csr(name: str, *hosts: str, groups: Sequence[str] = ("system:nodes",)) -> str:
    parts = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*parts, x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder(subject)
    if hosts:
        names = x509.SubjectAlternativeName([general(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return base64.b64encode(builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)).decode()


def general(host: str) -> x509.GeneralName:
    if "@" in host:
        return x509.RFC822Name(host)
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Cluster:
    """A server whose controller decides and signs."""

    def __init__(self, server: LocalServer, authority: Path) -> None:
        self.server = server
        self.authority = authority

    async def ask(
        self, signer: str, request: str, who: dict[str, str], **spec: Any
    ) -> dict[str, Any]:
        """Ask for a certificate; returns the request as it is when everybody has acted."""
        use = "server auth" if signer == NODE_SERVING else "client auth"
        wanted = {"request": request, "signerName": signer, "usages": ["digital signature", use]}
        made = await self.server.post(
            URL, {"metadata": {"generateName": "csr-"}, "spec": wanted | spec}, headers=lower(who)
        )
        return await self.settled(made["metadata"]["name"])

    async def settled(self, name: str) -> dict[str, Any]:
        for _ in range(5):
            await self.server.settle()
        found: dict[str, Any] = await self.server.get(f"{URL}/{name}")
        return found

    async def approve(self, name: str) -> dict[str, Any]:
        condition = {"type": "Approved", "status": "True", "reason": "ByHand"}
        await self.server.merge(f"{URL}/{name}/approval", {"status": {"conditions": [condition]}})
        return await self.settled(name)


def lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    authority = pki.ensure(tmp_path / "pki", ()).directory

    def sign(pem: bytes, uses: Sequence[str], life: timedelta, now: datetime) -> bytes:
        return pki.sign_request(authority, pem, uses, life, now)

    async with LocalServer.running(clock=FakeClock(NOW - timedelta(days=365))) as server:
        await joining.ensure(server.app.api, "https://192.0.2.1:6443", b"PEM")
        controller = CertificateSigningController(server.client, sign, server.clock)
        server.start(controller.run())
        await server.settle()
        yield Cluster(server, authority)


def said(request: dict[str, Any]) -> list[tuple[str, str, str]]:
    conditions = request.get("status", {}).get("conditions", [])
    return [(each["type"], each["reason"], each.get("message", "")) for each in conditions]


def certificate(request: dict[str, Any]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(request["status"]["certificate"]))


async def test_a_machine_with_a_token_gets_the_certificate_of_a_node(cluster: Cluster) -> None:
    request = await cluster.ask(NODE_CLIENT, csr("system:node:far"), BOOTSTRAPPER)
    assert request["spec"]["username"] == "system:bootstrap:abcdef"
    assert said(request) == [
        (
            "Approved",
            "AutoApproved",
            "Auto approving kubelet client certificate after SubjectAccessReview.",
        )
    ]
    assert request["status"]["conditions"][0]["lastTransitionTime"] == "2029-01-01T00:00:00Z"
    issued = certificate(request)
    issued.verify_directly_issued_by(
        x509.load_pem_x509_certificate((cluster.authority / "ca.crt").read_bytes())
    )
    assert issued.subject.rfc4514_string() == "CN=system:node:far,O=system:nodes"
    uses = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [x509.OID_CLIENT_AUTH]
    constraints = issued.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca


async def test_a_node_renews_its_own_certificate_and_no_others(cluster: Cluster) -> None:
    own = await cluster.ask(NODE_CLIENT, csr("system:node:far"), node("far"))
    assert [reason for _, reason, _ in said(own)] == ["AutoApproved"]
    assert "self kubelet client" in said(own)[0][2]
    other = await cluster.ask(NODE_CLIENT, csr("system:node:other"), node("far"))
    assert said(other) == []


@pytest.mark.parametrize(
    "request_",
    [
        csr("jane"),
        csr("system:node:far", groups=("system:masters",)),
        csr("system:node:far", groups=("system:nodes", "system:masters")),
        csr("system:node:far", "far"),
        csr("system:node:far", "192.0.2.7"),
        csr("system:node:far", "far@example.com"),
    ],
)
async def test_a_token_gets_nothing_but_the_certificate_of_a_node(
    cluster: Cluster, request_: str
) -> None:
    assert said(await cluster.ask(NODE_CLIENT, request_, BOOTSTRAPPER)) == []


async def test_whoever_says_that_they_are_somebody_else_is_not_believed(cluster: Cluster) -> None:
    spec = {"username": "system:node:far", "groups": ["system:nodes", "system:masters"]}
    jane = {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}
    request = await cluster.ask(NODE_SERVING, csr("system:node:far", "far"), jane, **spec)
    assert request["spec"]["username"] == "jane"
    assert said(request) == []


async def register(cluster: Cluster, name: str, address: str) -> None:
    addresses = [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": name},
    ]
    document = {"metadata": {"name": name}, "status": {"addresses": addresses}}
    await cluster.server.post("/api/v1/nodes", document)


async def test_a_node_serves_under_its_own_name_and_address(cluster: Cluster) -> None:
    await register(cluster, "far", "192.0.2.7")
    wanted = csr("system:node:far", "far", "192.0.2.7")
    request = await cluster.ask(NODE_SERVING, wanted, node("far"))
    assert [reason for _, reason, _ in said(request)] == ["AutoApproved"]
    names = certificate(request).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["far"]
    assert [str(each) for each in names.value.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]


@pytest.mark.parametrize("host", ["192.0.2.8", "other", "kubernetes.default.svc", "far@x.org"])
async def test_a_node_serves_under_no_other_name(cluster: Cluster, host: str) -> None:
    await register(cluster, "far", "192.0.2.7")
    request = await cluster.ask(NODE_SERVING, csr("system:node:far", "far", host), node("far"))
    assert said(request) == []


@pytest.mark.parametrize(
    ("name", "address"), [("kubernetes", "192.0.2.7"), ("localhost", "10.96.0.1")]
)
async def test_a_node_that_is_called_as_the_server_gets_nothing(
    cluster: Cluster, name: str, address: str
) -> None:
    await register(cluster, name, address)
    request = await cluster.ask(NODE_SERVING, csr(f"system:node:{name}", name, address), node(name))
    assert said(request) == []


async def test_a_person_gets_a_certificate_once_a_person_has_approved(cluster: Cluster) -> None:
    jane = {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}
    request = await cluster.ask(CLIENT, csr("jane", groups=("devs",)), jane, expirationSeconds=3600)
    assert said(request) == []
    done = await cluster.approve(request["metadata"]["name"])
    issued = certificate(done)
    # An hour is not shortened by the minutes that the beginning lies back.
    assert issued.not_valid_after_utc - issued.not_valid_before_utc == timedelta(minutes=65)


async def test_what_does_not_fit_its_signer_fails_though_it_is_approved(cluster: Cluster) -> None:
    jane = {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}
    request = await cluster.ask(CLIENT, csr("jane"), jane, usages=["server auth"])
    done = await cluster.approve(request["metadata"]["name"])
    assert said(done)[1] == (
        "Failed",
        "SignerValidationFailure",
        "invalid usage for client certificate: server auth",
    )
    assert "certificate" not in done["status"]


async def test_other_signers_sign_for_themselves(cluster: Cluster) -> None:
    admin = {"Authorization": f"Bearer {TOKEN}"}
    request = await cluster.ask("example.com/own", csr("jane"), admin)
    done = await cluster.approve(request["metadata"]["name"])
    assert "certificate" not in done["status"]


async def test_requests_do_not_stay_for_ever(cluster: Cluster) -> None:
    await cluster.ask(NODE_CLIENT, csr("system:node:far"), BOOTSTRAPPER)
    await cluster.ask(NODE_CLIENT, csr("jane"), BOOTSTRAPPER)

    async def left() -> int:
        return len((await cluster.server.get(URL))["items"])

    await cluster.server.clock.advance(3600)
    assert await left() == 2
    await cluster.server.clock.advance(3600)
    assert await left() == 1
    await cluster.server.clock.advance(24 * 3600)
    assert await left() == 0


@pytest.mark.parametrize(
    ("seconds", "life"),
    [
        (None, timedelta(days=365)),
        (600, timedelta(minutes=10)),
        (1, timedelta(minutes=10)),
        (10**9, timedelta(days=365)),
        (86400, timedelta(days=1)),
    ],
)
def test_a_life_is_as_asked_for_within_bounds(seconds: int | None, life: timedelta) -> None:
    assert lifetime(seconds) == life


def test_what_was_approved_and_never_signed_stays_for_a_day() -> None:
    condition = {"type": "Approved", "status": "True", "lastUpdateTime": "2030-01-01T00:00:00Z"}
    request = convert({"status": {"conditions": [condition]}}, CertificateSigningRequest)
    assert not outdated(request, NOW + timedelta(hours=24))
    assert outdated(request, NOW + timedelta(hours=25))
