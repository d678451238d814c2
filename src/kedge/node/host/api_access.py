"""How a node reaches its cluster, and as whom."""

import ssl
from pathlib import Path
from typing import Final

from kedge.client.client import Client
from kedge.client.http import HttpTransport

CERTIFICATE: Final = "node.crt"
"""What the node shows to the server; if it was issued on this machine, to its callers as well."""
SERVING: Final = "serving.crt"
"""What it shows to its callers, if it had to ask for it."""
KEY: Final = "node.key"
AUTHORITY: Final = "ca.crt"


class ApiAccess:
    """One server, and the directory with what the node shows it."""

    def __init__(self, *, url: str, pki: Path) -> None:
        self.url = url
        self.pki = pki
        self._calling = ssl.create_default_context(cafile=str(pki / AUTHORITY))
        self._serving = self._serving_context()
        self.reload()

    def client(self, user_agent: str) -> Client:
        """The node, as its certificate names it."""
        return Client(HttpTransport(self.url, tls=self._calling), user_agent=user_agent)

    def serving(self) -> ssl.SSLContext:
        """For those who call the node; their certificates are checked if they show one."""
        return self._serving

    def reload(self) -> None:
        """Show the certificates that are there now; open connections go on with the old ones."""
        self._calling.load_cert_chain(self.pki / CERTIFICATE, self.pki / KEY)
        own = self.pki / SERVING
        # Until a node that has to ask for it has been given one, nobody will trust what it shows.
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
