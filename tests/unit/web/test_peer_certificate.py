"""Which authority a client's certificate is of, as TLS has verified it."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver import pki
from kedge.machinery.certificates import fingerprint
from kedge.web.peer_certificate import PeerCertificates

NOW = datetime.now(UTC)  # noqa: TID251


class Transport:
    """A connection after its handshake."""

    def __init__(self, tls: ssl.SSLObject) -> None:
        self._tls = tls

    def get_extra_info(self, name: str) -> Any:
        return self._tls if name == "ssl_object" else None


class Handshakes:
    """A server that trusts two authorities, and clients with a certificate of one of them."""

    def __init__(self, directory: Path, version: ssl.TLSVersion) -> None:
        self.identity = pki.ensure(directory / "cluster", ())
        self.proxy_ca = pki.ensure_front_proxy(directory / "proxy", NOW)
        self.identity.context.load_verify_locations(cadata=self.proxy_ca.decode())
        self.certificates = PeerCertificates()
        self._version = version
        self._directory = directory

    def client(self, certificate: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.identity.ca_pem.decode())
        context.check_hostname = False
        context.maximum_version = self._version
        path = self._directory / certificate
        context.load_cert_chain(path.with_suffix(".crt"), path.with_suffix(".key"))
        return context

    def connect(
        self, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> tuple[ssl.SSLObject, Any]:
        """Return the client's side, and the certificate that the server reads."""
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(down, up, session=session)
        server = self.identity.context.wrap_bio(up, down, server_side=True)
        for end in (client, server, client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
        server.write(b"x")
        assert client.read(1) == b"x"  # with the session tickets of TLS 1.3
        return client, self.certificates.of(Transport(server))  # type: ignore[arg-type]


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def handshakes(tmp_path: Path, request: pytest.FixtureRequest) -> Handshakes:
    return Handshakes(tmp_path, request.param)


def test_the_authority_is_the_one_that_signed(handshakes: Handshakes) -> None:
    _, proxy = handshakes.connect(handshakes.client("proxy/client"))
    _, node = handshakes.connect(handshakes.client("cluster/node-client"))
    assert proxy["authority"] == fingerprint(handshakes.proxy_ca)
    assert node["authority"] == fingerprint(handshakes.identity.ca_pem)


def test_a_resumed_session_has_the_authority_of_the_first(handshakes: Handshakes) -> None:
    context = handshakes.client("proxy/client")
    client, first = handshakes.connect(context)
    again, second = handshakes.connect(context, client.session)
    assert again.session_reused
    assert second == first


def test_a_session_that_another_server_began_has_no_authority(handshakes: Handshakes) -> None:
    context = handshakes.client("proxy/client")
    client, _ = handshakes.connect(context)
    handshakes.certificates = PeerCertificates()
    _, found = handshakes.connect(context, client.session)
    assert found["authority"] == ""
