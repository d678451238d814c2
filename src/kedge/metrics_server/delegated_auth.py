"""DelegatedAuth: authentication and authorization by the cluster in front."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import msgspec

from kedge.apiserver.authentication.authenticator import AUTHENTICATED, UNAUTHENTICATED, bearer
from kedge.apiserver.authentication.request_headers import PROXY
from kedge.apiserver.authorization.attributes import Attributes, Decision, denied
from kedge.apiserver.authorization.authorizer import SUPERUSERS
from kedge.apiserver.request import ANONYMOUS, User
from kedge.client.client import Client
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError, internal, unauthorized
from kedge.metrics_server.front_proxy import FrontProxy
from kedge.web.message import HttpRequest

TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REMEMBERED: Final = 10.0
"""Seconds for which an answer of the cluster holds."""
_MOST: Final = 4096
_LONGEST: Final = 16 << 10
"""Bytes of a token."""

T = TypeVar("T")


class DelegatedAuth:
    """Asks the cluster with reviews, and caches its answers for a short time."""

    def __init__(self, client: Client, proxy: Callable[[], FrontProxy], clock: Clock) -> None:
        self._client = client
        self._proxy = proxy
        self._clock = clock
        self._users: ReviewCache[User | None] = ReviewCache(clock)
        self._decisions: ReviewCache[Decision] = ReviewCache(clock)

    async def user(self, http: HttpRequest) -> User:
        """The user of a request; anonymous without credentials, 401 with wrong ones."""
        named = self._proxy().user(http, self._clock)
        if named is not None:
            http.identified(PROXY)
            return _joined(named)
        token = bearer(http.headers.get("authorization", ""))
        if not token:
            return ANONYMOUS
        holder = await self._holder(token)
        if holder is None:
            raise unauthorized()
        http.identified(holder)
        return _joined(holder)

    async def check(self, asked: Attributes) -> None:
        """403 unless the cluster lets them."""
        if SUPERUSERS in asked.user.groups:
            return
        key = (
            *(asked.user, asked.verb, asked.group, asked.version, asked.resource),
            *(asked.namespace, asked.name, asked.path),
        )
        decision = self._decisions.get(key)
        if decision is None:
            status = await self._review(ACCESS, "authorization.k8s.io", _question(asked))
            decision = Decision(status.get("allowed") is True, str(status.get("reason", "")))
            self._decisions.keep(key, decision)
        if not decision.allowed:
            raise denied(asked, decision.reason)

    async def _holder(self, token: bytes) -> User | None:
        if len(token) > _LONGEST:
            return None
        key = sha256(token).digest()
        if key in self._users:
            return self._users.get(key)
        try:
            asked = {"token": token.decode()}
        except UnicodeDecodeError:
            return None
        status = await self._review(TOKENS, "authentication.k8s.io", asked)
        user = _told(status.get("user") or {}) if status.get("authenticated") is True else None
        self._users.keep(key, user)
        return user

    async def _review(self, path: str, group: str, spec: dict[str, Any]) -> dict[str, Any]:
        kind = "TokenReview" if path == TOKENS else "SubjectAccessReview"
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        try:
            reply = await self._client.send("POST", path, body=msgspec.json.encode(body))
            status = msgspec.json.decode(reply.body).get("status")
        except (StatusError, Unreachable, msgspec.DecodeError) as error:
            raise internal(f"the cluster could not be asked for a {kind}: {error}") from error
        return status if isinstance(status, dict) else {}


class ReviewCache(Generic[T]):
    """The answers of the last seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        kept = self._kept.get(key)
        return kept is not None and self._clock.monotonic() - kept[0] < REMEMBERED

    def get(self, key: Hashable) -> T | None:
        return self._kept[key][1] if key in self else None

    def keep(self, key: Hashable, value: T) -> None:
        self._kept.pop(key, None)
        self._kept[key] = self._clock.monotonic(), value
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)


def _question(asked: Attributes) -> dict[str, Any]:
    user = asked.user
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {name: list(values) for name, values in user.extra}
    if not asked.plural:
        return spec | {"nonResourceAttributes": {"path": asked.path, "verb": asked.verb}}
    about = {
        "verb": asked.verb,
        "group": asked.group,
        "version": asked.version,
        "resource": asked.plural,
        "subresource": asked.subresource,
        "namespace": asked.namespace,
        "name": asked.name,
    }
    given = {name: value for name, value in about.items() if value}
    return spec | {"resourceAttributes": given}


def _told(user: dict[str, Any]) -> User:
    extra = (user.get("extra") or {}).items()
    return User(
        str(user.get("username", "")),
        tuple(user.get("groups") or ()),
        str(user.get("uid", "")),
        tuple((name, tuple(values)) for name, values in extra),
    )


def _joined(user: User) -> User:
    """The user as a member of system:authenticated."""
    if user.name == ANONYMOUS.name or {AUTHENTICATED, UNAUTHENTICATED} & set(user.groups):
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
