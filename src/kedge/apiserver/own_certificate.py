"""The serving certificate of a server beside a cluster: of its own authority, or a given one."""

import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kedge.apiserver import pki
from kedge.machinery.clock import Clock
from kedge.machinery.interfaces import is_unspecified, own_addresses


class ServingCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """Where the certificate is, and for which names it is made."""

    directory: Path
    """The directory of an authority of its own, made if there is none."""
    hosts: Sequence[str]
    given: Path | None = None
    """A certificate to serve with instead."""
    given_key: Path | None = None

    def identity(self) -> pki.ServerIdentity | None:
        """Make or renew the certificate; None if one is given."""
        return None if self.given else pki.ensure(self.directory, self.hosts)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a listener; it does not trust any client certificate yet."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.given is not None:
            context.load_cert_chain(self.given, self.given_key)
        else:
            context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def keep_renewed(
        self, identity: pki.ServerIdentity, context: ssl.SSLContext, clock: Clock
    ) -> None:
        """Renew the certificate of a listener in time, until cancelled."""
        await pki.keep_renewed(identity._replace(context=context), self.hosts, clock)


def names_of(host: str, *further: str) -> list[str]:
    """Return the names of a certificate for a listener on this address."""
    every = own_addresses() if is_unspecified(host) else []
    return [host, *further, *every]


def reachable(host: str) -> str:
    """Return the address at which this machine reaches a listener on this address."""
    if is_unspecified(host):
        return "::1" if ":" in host else "127.0.0.1"
    return host
