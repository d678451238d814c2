"""Authenticator: from the credentials of a request to a user, or 401."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kedge.api.core_v1 import node, secret, service_account
from kedge.api.core_v1.pod import pod
from kedge.apiserver.authentication import jwt
from kedge.apiserver.authentication.bootstrap_tokens import BootstrapTokens
from kedge.apiserver.authentication.certificates import ClientCertificates
from kedge.apiserver.authentication.refusals import CredentialRefused, RefusalLog
from kedge.apiserver.authentication.service_accounts import (
    AUDIENCES,
    ServiceAccountTokens,
    Verified,
    common_audiences,
)
from kedge.apiserver.authentication.verified import VerifiedTokens
from kedge.apiserver.request import ANONYMOUS, User
from kedge.apiserver.watchcache import WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.errors import unauthorized
from kedge.web.message import HttpRequest

if TYPE_CHECKING:
    from kedge.apiserver.authentication.request_headers import HeaderProxies

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
ADMIN: Final = User("kubernetes-admin", ("system:masters", AUTHENTICATED))

INVALID: Final = "invalid bearer token"
"""The reason for a refused token that has no more specific one."""

_PROTOCOLS: Final = "sec-websocket-protocol"
_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."
"""How browsers, which cannot set the header, send a token when they open a WebSocket."""


class Holder(NamedTuple):
    """The user of a token, and the requested audiences that the token is valid for."""

    user: User
    audiences: tuple[str, ...]


class TokenAuthenticator(Protocol):
    """Knows the holders of tokens of one sort, such as those of other issuers."""

    def verified(self, token: bytes, audiences: Sequence[str]) -> Verified | None:
        """Return the holder; None if the token is of another sort, CredentialRefused if it does
        not hold, AnswerPending if another server has to be asked."""
        ...


def everybody(path: str) -> bool:
    """Any path may be requested without credentials."""
    return True


MOST_DIGESTS: Final = 1024
"""Headers whose hash is remembered."""


class Authenticator:
    """Knows who holds which credential in this cluster."""

    def __init__(
        self,
        tokens: Mapping[str, User],
        cache: WatchCache,
        key: jwt.TokenKey,
        clock: Clock,
        others: Sequence[TokenAuthenticator] = (),
        anonymous: Callable[[str], bool] = everybody,
        proxies: "HeaderProxies | None" = None,
    ) -> None:
        """`others` are asked about tokens that are not of this cluster; `anonymous` tells whether
        a path may be requested without credentials; `proxies` may name users in headers."""
        self.proxy_headers = None if proxies is None else proxies.headers
        """The headers in which proxies name users, which no other client may pass on."""
        self._others = others
        self._anonymous = anonymous
        self._clock = clock
        # By hash: how long a wrong token takes must not say how wrong it is.
        self._static = {_digest(token.encode()): _joined(user) for token, user in tokens.items()}
        self._accounts = ServiceAccountTokens(cache, key, clock)
        self._bootstrap = BootstrapTokens(cache.of(secret.RESOURCE), clock)
        self._certificates = proxies or ClientCertificates(clock)
        self._refusals = RefusalLog(clock)
        self._verified = VerifiedTokens()
        self._digests: dict[str, bytes] = {}
        """The hashes of tokens that were good, by header: of the other ones a stranger could send
        many. Python compares two headers only if their hashes, whose key is secret, are equal, so
        that the time of a look-up tells nothing of a token."""
        accounts, pods, nodes = service_account.RESOURCE, pod.RESOURCE, node.RESOURCE
        objects = [cache.of(resource) for resource in (accounts, pods, nodes)]
        self._verified.follow(objects, cache.of(secret.RESOURCE))

    @property
    def token_counts(self) -> Mapping[str, int]:
        """Verified service account tokens, by `valid` and `stale`."""
        return self._accounts.counts

    def user(self, http: HttpRequest) -> User:
        """The user behind a request; anonymous without credentials, 401 with wrong ones."""
        header = http.headers.get("authorization")
        if header is not None and http.peer_certificate is None:
            known = self._known(header)
            if known is not None:
                return known
        try:
            return self._user(http)
        except CredentialRefused as why:
            # HttpRequest.peer: the address of the client, where the listener tells it.
            self._refusals.note(http.peer, str(why))
            raise unauthorized() from None

    def holder(self, token: bytes, audiences: Sequence[str] = AUDIENCES) -> Holder:
        """Return the holder of a token; CredentialRefused if unknown or for other audiences."""
        if len(token) > jwt.LONGEST:
            raise CredentialRefused(INVALID)
        digest = _digest(token)
        for_us = tuple(audience for audience in AUDIENCES if audience in audiences)
        user = self._plain(token, digest) if for_us else None
        if user is not None:
            return Holder(user, for_us)
        verified = self._verified.get(digest, self._clock.now())
        if verified is None:
            verified = self._verify(token, digest, audiences)
        return Holder(verified.user, common_audiences(verified.audiences, audiences))

    def _verify(self, token: bytes, digest: bytes, audiences: Sequence[str]) -> Verified:
        verified = self._verified_by_one(token, audiences)
        verified = verified._replace(user=_joined(verified.user))
        if set(verified.audiences) & set(AUDIENCES):
            self._verified.keep(digest, verified)
        return verified

    def _verified_by_one(self, token: bytes, audiences: Sequence[str]) -> Verified:
        """Return what the first one says that knows the token."""
        refusals = []
        for authenticator in (self._accounts, *self._others):
            try:
                verified = authenticator.verified(token, audiences)
            except CredentialRefused as refusal:
                refusals.append(str(refusal))
            else:
                if verified is not None:
                    return verified
        raise CredentialRefused(", ".join(refusals) or INVALID)

    def _known(self, header: str) -> User | None:
        """The common case, a token that was seen before, at the price of a hash."""
        remembered = digest = self._digests.get(header)
        if digest is None:
            if header[:7] != "Bearer " or len(header) > jwt.LONGEST:
                return None
            digest = _digest(header[7:].encode("latin-1", "replace"))
        user = self._static.get(digest)
        if user is None:
            verified = self._verified.get(digest, self._clock.now())
            if verified is None:
                return None
            user = verified.user
        if remembered is None:
            if len(self._digests) >= MOST_DIGESTS:
                self._digests.clear()
            self._digests[header] = digest
        return user

    def _user(self, http: HttpRequest) -> User:
        """Return the user of a request; wrong credentials are refused, not treated as anonymous."""
        refusal = None
        if http.peer_certificate is not None:
            try:
                user = self._certificates.user(http)
            except CredentialRefused as why:
                refusal = why
            else:
                if user is not None:
                    return _joined(user)
        token = bearer(http.headers.get("authorization", ""))
        if token:
            return self.holder(token).user
        if _opens_websocket(http):
            protocol = websocket_bearer(http.headers.get(_PROTOCOLS, ""))
            if protocol is not None:
                user = self.holder(protocol.token).user
                # The server may choose and send back only one of the other protocols.
                http.headers = {**http.headers, _PROTOCOLS: ",".join(protocol.others)}
                return user
        if refusal is not None:
            raise refusal
        if not self._anonymous(http.path):
            raise CredentialRefused("no credentials")
        return ANONYMOUS

    def _plain(self, token: bytes, digest: bytes) -> User | None:
        """The holder of a token that is good for this server, whatever it says."""
        static = self._static.get(digest)
        if static is not None:
            return static
        user = self._bootstrap.user(token)
        return None if user is None else _joined(user)


class WebSocketBearer(NamedTuple):
    """A token that came among the names of protocols."""

    token: bytes
    others: list[str]


def bearer(header: str) -> bytes:
    """The token in an Authorization header; empty if there is none, as with other schemes."""
    scheme, _, rest = header.strip().partition(" ")
    return (
        rest.partition(" ")[0].encode("latin-1", "replace") if scheme.lower() == "bearer" else b""
    )


def websocket_bearer(header: str) -> WebSocketBearer | None:
    """The token in a Sec-WebSocket-Protocol header, if any; raises Refused if it is malformed."""
    protocols = [protocol.strip() for protocol in header.split(",")]
    others = [protocol for protocol in protocols if not protocol.startswith(_PROTOCOL)]
    tokens = [protocol[len(_PROTOCOL) :] for protocol in protocols if protocol not in others]
    if not tokens:
        return None
    if len(tokens) > 1:
        raise CredentialRefused("multiple base64.bearer.authorization tokens specified")
    try:
        token = jwt.from_base64(tokens[0].encode())
        token.decode()
    except ValueError:
        raise CredentialRefused("invalid base64.bearer.authorization token encoding") from None
    if not token:
        return None
    if not others:
        raise CredentialRefused("missing additional subprotocol")
    return WebSocketBearer(token, others)


def _opens_websocket(http: HttpRequest) -> bool:
    headers = http.headers
    return (
        headers.get("upgrade", "").lower() == "websocket"
        and "upgrade" in headers.get("connection", "").lower()
    )


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


def _joined(user: User) -> User:
    """The user as a member of the group of all who have proved who they are."""
    if user.name == ANONYMOUS.name or {AUTHENTICATED, UNAUTHENTICATED} & set(user.groups):
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
