"""The authenticating proxies that flags configure: which certificates and headers are believed."""

import logging
import ssl
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kedge.apiserver.aggregation.front_proxy import TrustedProxies
from kedge.apiserver.authentication.certificates import ClientCertificates
from kedge.apiserver.authentication.request_headers import HeaderProxies, RequestHeaders
from kedge.apiserver.config import RequestHeaderTrust
from kedge.apiserver.configuration_file import LARGEST_FILE, ConfigurationFileError
from kedge.apiserver.followed_file import FollowedFile
from kedge.apiserver.pki import ServerIdentity
from kedge.machinery.certificates import blocks, fingerprint
from kedge.machinery.clock import Clock
from kedge.machinery.tls_trust import trust

log = logging.getLogger(__name__)

_FLAG: Final = "--requestheader-client-ca-file"


def read(
    trust: RequestHeaderTrust, identity: ServerIdentity, clock: Clock
) -> tuple[HeaderProxies, TrustedProxies]:
    """Return the proxies, and what extension servers learn about them. TLS accepts their
    certificates from then on. ConfigurationFileError if the flags cannot be used."""
    check(trust)
    assert trust.authority is not None
    pem = _authorities(trust.authority, identity.context)
    names = (trust.users, trust.uids, trust.groups, trust.extra_prefixes)
    headers = RequestHeaders(*(tuple(name.lower() for name in each) for each in names))
    proxies = HeaderProxies(
        headers,
        fingerprints(pem),
        frozenset(trust.allowed_names),
        ClientCertificates(clock),
        fingerprints(identity.ca_pem),
        clock=clock,
    )
    return proxies, TrustedProxies(pem, trust.allowed_names, *names)


class FollowedProxies:
    """The proxies of the flags, whose authorities are read again when their file changes.

    TLS goes on to accept certificates of an authority that was removed, because a context cannot
    forget one. The headers of such a proxy are not believed, and it is no user either.
    """

    def __init__(self, trust: RequestHeaderTrust, identity: ServerIdentity, clock: Clock) -> None:
        """Read the file; ConfigurationFileError if the flags cannot be used."""
        self.proxies, self.published = read(trust, identity, clock)
        assert trust.authority is not None
        self._path = trust.authority
        self._context = identity.context
        self._file = FollowedFile(trust.authority, clock)

    async def follow(self) -> None:
        """Use the authorities of the file as it changes, until cancelled."""
        await self._file.follow(self._replace)

    async def _replace(self) -> bool:
        try:
            pem = _authorities(self._path, self._context)
        except ConfigurationFileError as error:
            log.error("authorities of proxies not reloaded error=%s", error)
            return True
        self.proxies.replace_authorities(fingerprints(pem))
        self.published = replace(self.published, authorities=pem)
        log.info("reloaded authorities of proxies")
        return True


def check(trust: RequestHeaderTrust) -> None:
    """Raise ConfigurationFileError for flags that have no effect, or another one than meant."""
    if trust.authority is None:
        raise ConfigurationFileError(
            f"the flags --requestheader-* have no effect without {_FLAG}: give it too"
        )
    if not trust.users:
        raise ConfigurationFileError("--requestheader-username-headers names no header")
    if trust.uids and "x-remote-uid" not in map(str.lower, trust.uids):
        raise ConfigurationFileError(
            "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid"
            " header - API aggregation will not work"
        )


def fingerprints(pem: bytes) -> frozenset[str]:
    """Return the hashes of all certificates in a file."""
    return frozenset(map(fingerprint, blocks(pem)))


def _authorities(path: Path, context: ssl.SSLContext) -> bytes:
    try:
        with path.open("rb") as file:
            pem = file.read(LARGEST_FILE)
        trust(context, pem)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise ConfigurationFileError(f"{_FLAG} '{path}' cannot be used: {error}") from error
    return b"\n".join(blocks(pem))
