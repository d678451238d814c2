"""Client certificates: the common name is the user, every organization a group."""

from collections.abc import Mapping
from typing import Any, Final

from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.authentication.service_accounts import CREDENTIAL_ID
from kedge.apiserver.request import User
from kedge.machinery.certificates import end_of
from kedge.machinery.clock import Clock
from kedge.web.message import HttpRequest

UID: Final = "1.3.6.1.4.1.57683.2"
"""The part of a subject that holds the user's uid."""
_MOST: Final = 4096

Certificate = Mapping[str, Any]
"""As the ssl module shows it, perhaps with the hash of the whole under `sha256`."""


class ClientCertificates:
    """Reads certificates that TLS has verified, each one once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[object, ...], tuple[User | None, float]] = {}

    def user(self, http: HttpRequest) -> User | None:
        """Return the user of the client's certificate, None if it names none; CredentialRefused if
        expired."""
        return None if http.peer_certificate is None else self.holder(http.peer_certificate)

    def holder(self, certificate: Certificate) -> User | None:
        """Return the user of a certificate, None if it names none; CredentialRefused if expired."""
        key = (
            certificate.get("serialNumber"),
            certificate.get("notAfter"),
            certificate["subject"],
            certificate.get("sha256"),
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = (user_of(certificate), _end(certificate))
        user, end = known
        # TLS has looked at the dates when the connection was made, which may be long ago.
        if self._clock.now().timestamp() > end:
            raise CredentialRefused("client certificate has expired")
        return user


def user_of(certificate: Certificate) -> User | None:
    """The user whom a subject describes."""
    subject = [pair for parts in certificate["subject"] for pair in parts]
    name = common_name(certificate)
    if not name:
        return None
    uids = [value for kind, value in subject if kind == UID]
    if len(uids) > 1 or uids == [""]:
        raise CredentialRefused("client certificate must hold one UID or none")
    groups = tuple(value for kind, value in subject if kind == "organizationName")
    digest = certificate.get("sha256")
    extra = ((CREDENTIAL_ID, (f"X509SHA256={digest}",)),) if digest else ()
    return User(name, groups, "".join(uids), extra)


def common_name(certificate: Certificate) -> str:
    """Return the common name of the subject, the last one as upstream; empty if it has none."""
    pairs = [pair for parts in certificate["subject"] for pair in parts]
    return next((value for name, value in reversed(pairs) if name == "commonName"), "")


def _end(certificate: Certificate) -> float:
    return end_of(certificate).timestamp()
