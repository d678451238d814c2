"""Credentials: what a client proved its identity with, kept for the requests of its browser."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kedge.web.message import HttpRequest


class Credentials(NamedTuple):
    """The parts of a request that the authenticator looks at.

    A session keeps these and not the user whom they named: each request of the browser is
    authenticated with them again. So a session ends when its token expires, when its service
    account is deleted or when its certificate runs out, like every other use of them.
    """

    headers: Mapping[str, str]
    certificate: Mapping[str, Any] | None
    prefixes: tuple[str, ...] = ()
    """How the headers begin in which proxies name users."""

    @classmethod
    def of(cls, http: HttpRequest, prefixes: tuple[str, ...] = ()) -> "Credentials":
        """Return those of a request."""
        kept = {n: value for n, value in http.headers.items() if _is_credential(n, prefixes)}
        return cls(kept, http.peer_certificate, prefixes)

    def give_to(self, http: HttpRequest, headers: Mapping[str, str]) -> None:
        """Let a request with these further headers present the credentials, and no others: with the
        certificate of a proxy, a header of the browser would add its user to any group."""
        others = {n: value for n, value in headers.items() if not _is_credential(n, self.prefixes)}
        http.headers = {**others, **self.headers}
        http.peer_certificate = self.certificate


def _is_credential(name: str, prefixes: tuple[str, ...]) -> bool:
    return name == "authorization" or name.startswith(prefixes)
