"""How a node reaches its cluster, and as whom."""

import ssl
from pathlib import Path
from typing import Final

import msgspec

from kedge.client.client import Client
from kedge.client.http import HttpTransport

CERTIFICATE: Final = "node.crt"
KEY: Final = "node.key"
AUTHORITY: Final = "ca.crt"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One server, and the directory with what the node shows it."""

    url: str
    pki: Path

    def client(self, user_agent: str) -> Client:
        """The node, as its certificate names it."""
        context = ssl.create_default_context(cafile=str(self.pki / AUTHORITY))
        context.load_cert_chain(self.pki / CERTIFICATE, self.pki / KEY)
        return Client(HttpTransport(self.url, tls=context), user_agent=user_agent)

    def serving(self) -> ssl.SSLContext:
        """For those who call the node; their certificates are checked if they show one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.pki / CERTIFICATE, self.pki / KEY)
        context.load_verify_locations(self.pki / AUTHORITY)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context
