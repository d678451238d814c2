"""A node's certificates: two when it has to ask, new ones before the old ones end."""

import ssl
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kedge.apiserver import joining, pki
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.controllers.access.certificate_signing import CertificateSigningController
from kedge.node.host.api_access import ApiAccess
from kedge.node.host.certificates import (
    CLIENT,
    SERVER,
    CertificateDenied,
    CertificateRenewal,
    obtain,
    private_key,
    renewal_time,
    signing_request,
)
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.message import HttpRequest

URL = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
START = datetime(2027, 1, 1, tzinfo=UTC)
LATER = START + timedelta(days=291, hours=12)
"""Half a day before a certificate of a year, issued at the start, is to be replaced."""
DAY = 86400.0


class Node:
    """The node far at 192.0.2.7, registered, and the directory with what it shows."""

    def __init__(self, server: LocalServer, theirs: Path) -> None:
        self.server = server
        self.pki = theirs
        self.access = ApiAccess(url="https://127.0.0.1:1", pki=theirs)
        self.renewal = CertificateRenewal(
            self.access, self.client, server.clock, "far", "192.0.2.7"
        )

    @property
    def client(self) -> Client:
        """The server, as the node."""

        def handle(call: Call):  # type: ignore[no-untyped-def]
            who = {"impersonate-user": "system:node:far", "impersonate-group": "system:nodes"}
            headers = {**call.headers, **who, "authorization": f"Bearer {TOKEN}"}
            request = HttpRequest(call.method, call.path, call.query, headers, call.body)
            return self.server.app.handle(request)

        return Client(LocalTransport(handle))

    def begin(self, *, requests_serving: bool) -> None:
        self.server.start(self.renewal.run(requests_serving=requests_serving))

    def certificate(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.pki / name).read_bytes())


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    authority = pki.ensure(tmp_path / "pki", (), FakeClock(START)).directory
    pki.ensure_node(authority, "far", ("far", "192.0.2.7"), tmp_path / "far", START)

    def sign(pem: bytes, uses: Sequence[str], life: timedelta, now: datetime) -> bytes:
        return pki.sign_request(authority, pem, uses, life, now)

    async with LocalServer.running(clock=FakeClock(LATER)) as server:
        await joining.ensure(server.app.api, "https://192.0.2.1:6443", b"PEM")
        controller = CertificateSigningController(server.client, sign, server.clock)
        server.start(controller.run())
        addresses = [
            {"type": "InternalIP", "address": "192.0.2.7"},
            {"type": "Hostname", "address": "far"},
        ]
        await server.post(
            "/api/v1/nodes", {"metadata": {"name": "far"}, "status": {"addresses": addresses}}
        )
        yield Node(server, tmp_path / "far")


def uses(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


async def test_a_node_of_this_machine_asks_for_nothing_till_its_certificate_grows_old(
    node: Node,
) -> None:
    node.begin(requests_serving=False)
    await node.server.clock.advance(DAY / 4)
    assert {each.name for each in node.pki.iterdir()} == {"ca.crt", "node.crt", "node.key"}
    await node.server.clock.advance(DAY)
    assert uses(node.certificate("node.crt")) == [x509.OID_CLIENT_AUTH]
    assert uses(node.certificate("serving.crt")) == [x509.OID_SERVER_AUTH]
    now = node.server.clock.now()
    assert node.certificate("node.crt").not_valid_after_utc > now + timedelta(days=360)


async def test_a_node_that_joined_asks_for_what_it_shows_its_callers(node: Node) -> None:
    before = node.certificate("node.crt")
    node.begin(requests_serving=True)
    await node.server.clock.advance(1)
    serving = node.certificate("serving.crt")
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["far"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]
    assert node.certificate("node.crt") == before
    await node.server.clock.advance(DAY / 4)
    assert node.certificate("serving.crt") == serving


async def test_a_node_that_moved_asks_anew(node: Node) -> None:
    node.begin(requests_serving=True)
    await node.server.clock.advance(1)
    before = node.certificate("serving.crt")
    moved = CertificateRenewal(node.access, node.client, node.server.clock, "far", "192.0.2.9")
    addresses = [
        {"type": "InternalIP", "address": "192.0.2.9"},
        {"type": "Hostname", "address": "far"},
    ]
    await node.server.merge("/api/v1/nodes/far/status", {"status": {"addresses": addresses}})
    node.server.start(moved.run(requests_serving=True))
    await node.server.clock.advance(1)
    after = node.certificate("serving.crt")
    names = after.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.9"]
    assert after.public_key() == before.public_key()


async def test_open_ends_show_the_new_certificate_at_once(node: Node) -> None:
    context = node.access.serving()
    node.begin(requests_serving=True)
    await node.server.clock.advance(1)
    expected = node.certificate("serving.crt").public_bytes(Encoding.DER)
    assert shown(context) == expected


def shown(context: ssl.SSLContext) -> bytes:
    """What a caller is shown."""
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname = False
    caller.verify_mode = ssl.CERT_NONE
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = caller.wrap_bio(down, up)
    server = context.wrap_bio(up, down, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client.getpeercert(binary_form=True) or b""


async def test_a_request_that_is_denied_is_not_waited_for(node: Node) -> None:
    key = private_key(node.pki / "node.key")

    async def wait() -> None:
        with pytest.raises(CertificateDenied, match="was refused: not today"):
            await obtain(node.client, node.server.clock, SERVER, key, "far", ["192.0.2.8"])

    waiting = node.server.start(wait())
    await node.server.clock.advance(1)
    (request,) = (await node.server.get(URL))["items"]
    denied = {"type": "Denied", "status": "True", "message": "not today"}
    name = request["metadata"]["name"]
    await node.server.merge(f"{URL}/{name}/approval", {"status": {"conditions": [denied]}})
    assert not waiting.done()
    await node.server.clock.advance(10)
    assert waiting.done()


async def test_a_request_waits_for_a_person_if_need_be(node: Node) -> None:
    key = private_key(node.pki / "node.key")
    got: list[bytes] = []

    async def wait() -> None:
        got.append(await obtain(node.client, node.server.clock, SERVER, key, "far", ["192.0.2.8"]))

    node.server.start(wait())
    await node.server.clock.advance(300)
    assert not got
    (request,) = (await node.server.get(URL))["items"]
    approved = {"type": "Approved", "status": "True", "reason": "ByHand"}
    name = request["metadata"]["name"]
    await node.server.merge(f"{URL}/{name}/approval", {"status": {"conditions": [approved]}})
    await node.server.clock.advance(10)
    assert uses(x509.load_pem_x509_certificate(got[0])) == [x509.OID_SERVER_AUTH]


def test_four_fifths_of_a_life_are_enough(tmp_path: Path) -> None:
    authority = pki.ensure(tmp_path / "pki", (), FakeClock(START)).directory
    request = signing_request(private_key(tmp_path / "key"), "far", ())
    life = timedelta(days=10)
    pem = pki.sign_request(authority, request, ["client auth"], life, START)
    assert renewal_time(pem) == START - timedelta(minutes=5) + life * 0.8
    assert CLIENT.use == "client auth"


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    made = private_key(tmp_path / "key")
    assert private_key(tmp_path / "key").private_numbers() == made.private_numbers()
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


async def test_a_node_beside_the_server_loads_the_certificate_for_its_own_address(
    node: Node, tmp_path: Path
) -> None:
    renewal = CertificateRenewal(node.access, node.client, node.server.clock, "far", "10.244.3.1")
    loaded: list[str] = []
    node.access.reload = lambda: loaded.append("again")  # type: ignore[method-assign]
    node.server.start(renewal.run(requests_serving=False))
    await node.server.clock.advance(1)
    assert loaded == []
    hosts = ("far", "10.244.3.1")
    pki.ensure_serving(tmp_path / "pki", "far", hosts, node.pki, node.server.clock.now())
    await node.server.clock.advance(1)
    assert loaded == ["again"]
