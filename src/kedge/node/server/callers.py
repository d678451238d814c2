"""Authentication and authorization of the callers of a node, by the API server."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.web.message import HttpRequest, asks_upgrade

K = TypeVar("K")
V = TypeVar("V")

_ACCOUNTS: Final = "system:serviceaccount:"
SUPERUSERS: Final = "system:masters"
YES_SECONDS: Final = 30.0
NO_SECONDS: Final = 5.0
"""Seconds for which a review of the API server is cached."""
_MOST_REMEMBERED: Final = 1024
LONGEST_TOKEN: Final = 16 << 10
"""Characters of a token; the API server accepts no longer ones."""

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}
_OWN_PARTS: Final = {"stats": "stats", "metrics": "metrics", "logs": "log"}
"""Paths with a subresource of their own, which nodes/proxy does not include."""
WINDOWS_ROOT: Final = "apis/metrics/v1alpha1"
"""The API group that a node serves for itself and its pods."""
_FINE_PARTS: Final = {"pods": "pods", "runningpods": "pods", "healthz": "healthz"}
"""Paths with a subresource of their own, which nodes/proxy includes."""


class NodeCaller(msgspec.Struct, frozen=True):
    """An authenticated caller."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def tenant(self) -> str:
        """The tenant for which the caller's connections count: service accounts count for their
        namespace."""
        return self.name.rpartition(":")[0] if self.name.startswith(_ACCOUNTS) else self.name

    @property
    def is_privileged(self) -> bool:
        return SUPERUSERS in self.groups


def parts(path: str) -> list[str]:
    """Return the subresources of the node; the caller needs permission for one of them."""
    if f"{path.strip('/')}/".startswith(f"{WINDOWS_ROOT}/"):
        return ["metrics", "stats"]
    first = path.strip("/").partition("/")[0]
    if first in _OWN_PARTS:
        return [_OWN_PARTS[first]]
    fine = _FINE_PARTS.get(first.lower())
    return [fine, "proxy"] if fine else ["proxy"]


def verb(request: HttpRequest) -> str:
    """Return the verb of a request. Exec and attach need `create`, whatever the method is, because
    browsers can open WebSockets only with GET."""
    if asks_upgrade(request.headers):
        return "create"
    return _VERBS.get(request.method, request.method.lower())


def of_certificate(certificate: Mapping[str, Any] | None) -> NodeCaller | None:
    """Return the user of a certificate of the cluster."""
    if not certificate:
        return None
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in pairs if key == "commonName"), "")
    groups = [value for key, value in pairs if key == "organizationName"]
    return NodeCaller(name, (*groups, "system:authenticated")) if name else None


class CallerReview:
    """Reviews callers with TokenReview and SubjectAccessReview."""

    def __init__(self, client: Client, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._known = _ReviewCache[bytes, NodeCaller | None](clock)
        """By the SHA-256 of a token."""
        self._decided = _ReviewCache[tuple[NodeCaller, str, str], bool](clock)

    async def admit(self, request: HttpRequest) -> None:
        """Raise 401 or 403 unless the caller is authenticated and authorized."""
        caller = of_certificate(request.peer_certificate) or await self._of_token(request)
        if caller is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        request.identified(caller)
        if SUPERUSERS in caller.groups:
            return
        wanted, asked = parts(request.path), verb(request)
        for part in wanted:
            if await self._may(caller, asked, part):
                return
        raise StatusError(
            403,
            "Forbidden",
            f"Forbidden (user={caller.name}, verb={asked}, resource=nodes,"
            f" subresource(s)=[{' '.join(wanted)}])",
        )

    async def _of_token(self, request: HttpRequest) -> NodeCaller | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST_TOKEN:
            return None
        digest = hashlib.sha256(token.encode()).digest()
        if digest not in self._known:
            caller = await self._reviewed(token)
            self._known.keep(digest, caller, good=caller is not None)
        return self._known[digest]

    async def _reviewed(self, token: str) -> NodeCaller | None:
        status = await self._ask("authentication.k8s.io", "TokenReview", {"token": token})
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        extra = {name: tuple(values) for name, values in (user.get("extra") or {}).items()}
        return NodeCaller(
            user.get("username", ""),
            tuple(user.get("groups") or ()),
            user.get("uid", ""),
            tuple(sorted(extra.items())),
        )

    async def _may(self, caller: NodeCaller, asked: str, part: str) -> bool:
        question = (caller, asked, part)
        if question not in self._decided:
            spec = {
                "user": caller.name,
                "uid": caller.uid,
                "groups": caller.groups,
                "extra": dict(caller.extra),
                "resourceAttributes": {
                    "verb": asked,
                    "version": "v1",
                    "resource": "nodes",
                    "subresource": part,
                    "name": self._node,
                },
            }
            status = await self._ask("authorization.k8s.io", "SubjectAccessReview", spec)
            allowed = status.get("allowed") is True
            self._decided.keep(question, allowed, good=allowed)
        return self._decided[question]

    async def _ask(self, group: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        document = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        path = f"/apis/{group}/v1/{kind.lower()}s"
        reply = await self._client.send("POST", path, body=msgspec.json.encode(document))
        status: dict[str, Any] = msgspec.json.decode(reply.body).get("status") or {}
        return status


class _ReviewCache(Generic[K, V]):
    """Caches reviews for some seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[K, tuple[V, float]] = {}

    def __contains__(self, question: K) -> bool:
        known = self._answers.get(question)
        return known is not None and known[1] > self._clock.monotonic()

    def __getitem__(self, question: K) -> V:
        return self._answers[question][0]

    def keep(self, question: K, answer: V, *, good: bool) -> None:
        if len(self._answers) >= _MOST_REMEMBERED:
            self._answers.clear()
        until = self._clock.monotonic() + (YES_SECONDS if good else NO_SECONDS)
        self._answers[question] = (answer, until)
