"""The node's access to the API server, and the certificates for both directions."""

import ssl
from pathlib import Path
from typing import Final

from kedge.client.client import Client
from kedge.client.http import HttpTransport

CERTIFICATE: Final = "node.crt"
"""The client certificate; if it was issued on this machine, also the serving certificate."""
SERVING: Final = "serving.crt"
"""The serving certificate, if the node had to request one."""
KEY: Final = "node.key"
AUTHORITY: Final = "ca.crt"


class ApiAccess:
    """The address of the API server, or of several, separated by commas, and the directory with the
    node's certificates."""

    def __init__(self, *, url: str, pki: Path) -> None:
        self.url = url
        self.pki = pki
        self._calling = ssl.create_default_context(cafile=str(pki / AUTHORITY))
        self._serving = self._serving_context()
        self.reload()

    def client(self, user_agent: str) -> Client:
        """Return a client with the identity of the node's certificate."""
        each = [HttpTransport(url, tls=self._calling) for url in self.url.split(",")]
        if len(each) == 1:
            return Client(each[0], user_agent=user_agent)
        # Most nodes have one server.
        from kedge.client.failover import FailoverTransport

        return Client(FailoverTransport(each), user_agent=user_agent)

    def serving(self) -> ssl.SSLContext:
        """Return the TLS context of the node's server, which verifies client certificates if there
        are any."""
        return self._serving

    def reload(self) -> None:
        """Load the current certificates; open connections keep the old ones."""
        self._calling.load_cert_chain(self.pki / CERTIFICATE, self.pki / KEY)
        own = self.pki / SERVING
        # A node that has to request a serving certificate is not trusted before it has one.
        self._serving.load_cert_chain(
            own if own.exists() else self.pki / CERTIFICATE, self.pki / KEY
        )

    def _serving_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(self.pki / AUTHORITY)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context
