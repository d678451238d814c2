"""Who asks: bearer tokens to users."""

import hmac
from collections.abc import Mapping

from kedge.apiserver.message import HttpRequest
from kedge.apiserver.request import ANONYMOUS, User
from kedge.machinery.errors import unauthorized

ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))


class Authenticator:
    """Knows the tokens of this cluster."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._tokens = dict(tokens)

    def user(self, request: HttpRequest) -> User:
        """The user behind a request; anonymous without credentials, 401 with wrong ones."""
        header = request.headers.get("authorization")
        if header is None:
            return ANONYMOUS
        user = self.by_header(header)
        if user is None:
            raise unauthorized()
        return user

    def by_header(self, header: str) -> User | None:
        scheme, _, token = header.partition(" ")
        return self.by_token(token.strip()) if scheme.lower() == "bearer" else None

    def by_token(self, token: str) -> User | None:
        # Compared in constant time: how long a wrong token takes must not say how wrong it is.
        given = token.encode()
        for known, user in self._tokens.items():
            if hmac.compare_digest(known.encode(), given):
                return user
        return None
