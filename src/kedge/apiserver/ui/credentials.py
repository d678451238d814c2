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

    @classmethod
    def of(cls, http: HttpRequest, prefixes: tuple[str, ...] = ()) -> "Credentials":
        """Return those of a request. `prefixes` are the headers in which proxies name users."""
        kept = {
            name: value
            for name, value in http.headers.items()
            if name == "authorization" or (prefixes and name.startswith(prefixes))
        }
        return cls(kept, http.peer_certificate)

    def give_to(self, http: HttpRequest, headers: Mapping[str, str]) -> None:
        """Let a request with these further headers present the credentials."""
        http.headers = {**headers, **self.headers}
        http.peer_certificate = self.certificate
