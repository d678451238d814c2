"""Certificates of clients, with the authority that TLS has verified each one by."""

import asyncio
import hashlib
from typing import Any, Final

MOST: Final = 4096
"""Certificates whose authority is remembered."""


class PeerCertificates:
    """Reads the client's certificate of new connections."""

    def __init__(self) -> None:
        self._authorities: dict[str, str] = {}
        """By the hash of a certificate, the hash of its authority's. A resumed session has no
        chain, but it was begun with this server."""

    def of(self, transport: asyncio.BaseTransport) -> dict[str, Any] | None:
        """Return the certificate as the ssl module shows it; under `sha256` the hash by which it
        is identified, under `authority` the hash of the trusted certificate that it leads to."""
        tls = transport.get_extra_info("ssl_object")
        certificate: dict[str, Any] = (tls.getpeercert() if tls is not None else None) or {}
        if not certificate:
            return None
        digest = hashlib.sha256(tls.getpeercert(True)).hexdigest()
        return certificate | {"sha256": digest, "authority": self._authority(tls, digest)}

    def _authority(self, tls: Any, digest: str) -> str:
        """Return the hash of the authority; empty if it is not known any more."""
        chain = verified_chain(tls)
        if not chain:
            return self._authorities.get(digest, "")
        if len(self._authorities) >= MOST:
            self._authorities.pop(next(iter(self._authorities)))
        authority = self._authorities[digest] = hashlib.sha256(chain[-1]).hexdigest()
        return authority


def verified_chain(tls: Any) -> list[bytes]:
    """Return the certificates, in DER, from the client's to the trusted one; none if the session
    is a resumed one."""
    if hasattr(tls, "get_verified_chain"):  # Python 3.13
        return list(tls.get_verified_chain())
    from _ssl import ENCODING_DER

    chain = tls._sslobj.get_verified_chain()
    return [each.public_bytes(ENCODING_DER) for each in chain or ()]
