"""The audit log: one JSON object per line for each request, with its user and its outcome.

Bodies and credentials are never in it: an event is made from the few values named below.
"""

import ipaddress
import logging
import os
import queue
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote_plus

import msgspec

from kedge.apiserver.context import UNKNOWN, RequestContext, is_stream
from kedge.apiserver.request import Request, User
from kedge.machinery.clock import Clock
from kedge.web.message import HttpRequest

log = logging.getLogger(__name__)

ID_HEADER: Final = "audit-id"
USER_AGENT_LENGTH: Final = 1024
WAITING: Final = 20_000
"""Events that may wait for the disk; further ones are counted and dropped."""
STARTED: Final = "ResponseStarted"
COMPLETE: Final = "ResponseComplete"
_SECRET_PARAMETERS: Final = ("token", "password", "secret", "key", "authorization")
_SECRET_RESOURCES: Final = frozenset(("secrets", "tokenreviews"))
_SECRET_SUBRESOURCES: Final = frozenset(("token",))


class AuditEvent(msgspec.Struct, frozen=True):
    """A request in the log, as plain values: events wait for the disk, and none may keep the body
    of its request in memory meanwhile."""

    uri: str
    verb: str
    received: datetime
    completed: datetime
    code: int
    stage: str = COMPLETE
    sources: tuple[str, ...] = ()
    user_agent: str = ""
    user: User = UNKNOWN
    impersonated: User | None = None
    object: Mapping[str, str] | None = None
    """The objectRef; None if the request names no resource."""
    reason: str = ""
    message: str = ""
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))
    """The ID that the client gave, else a random one."""


def event_of(context: RequestContext, clock: Clock) -> AuditEvent:
    """Return the event of a request that is answered, or whose answer has begun."""
    http, response = context.http, context.response
    assert response is not None
    completed = clock.now()
    impersonates = context.user is not context.authenticated
    return AuditEvent(
        uri=_uri(http),
        verb=context.verb or http.method.lower(),
        received=completed - timedelta(seconds=clock.monotonic() - context.started),
        completed=completed,
        code=response.status,
        stage=STARTED if is_stream(response) else COMPLETE,
        sources=_sources(http.headers, http.peer),
        user_agent=_shortened(http.headers.get("user-agent", "")),
        user=context.authenticated,
        impersonated=context.user if impersonates else None,
        # Only now: a create with generateName has a name since it was stored.
        object=_object_ref(context),
        reason=context.reason,
        message="" if _is_secret(context.request) else context.message,
        annotations=_annotations(context),
        id=_given_id(http.headers) or str(uuid.uuid4()),
    )


def _given_id(headers: Mapping[str, str]) -> str:
    """Return the ID by which the client wants to find its request, if it is plain text."""
    given = headers.get(ID_HEADER, "")
    return _shortened(given) if given.isascii() and given.isprintable() else ""


def _object_ref(context: RequestContext) -> Mapping[str, str] | None:
    """Return what the request is about, also if it was refused or forwarded; None for paths that
    name no resource."""
    request, target = context.request, context.target
    if request is not None:
        resource = request.resource
        return _named(
            resource.plural,
            request.namespace,
            request.name,
            resource.group,
            resource.version,
            request.subresource,
        )
    if target is None:
        return None
    return _named(
        target.plural,
        target.namespace,
        target.name,
        target.group,
        target.version,
        target.subresource,
    )


_REFERENCE: Final = ("resource", "namespace", "name", "apiGroup", "apiVersion", "subresource")


def _named(*values: str) -> Mapping[str, str]:
    named = zip(_REFERENCE, map(_shortened, values), strict=True)
    return {key: value for key, value in named if value}


def _is_secret(request: Request | None) -> bool:
    """Whether an error message about the request may quote a secret."""
    if request is None:
        return False
    resource, subresource = request.resource.plural, request.subresource
    return resource in _SECRET_RESOURCES or subresource in _SECRET_SUBRESOURCES


def _annotations(context: RequestContext) -> Mapping[str, str]:
    """Return the decision of the authorizer, and what admission plugins noted."""
    noted = {} if context.request is None else context.request.annotations
    decision = context.decision
    if decision is None:
        return noted
    verdict = "allow" if decision.allowed else "forbid"
    return {
        "authorization.k8s.io/decision": verdict,
        "authorization.k8s.io/reason": decision.reason,
        **noted,
    }


def document_of(event: AuditEvent) -> dict[str, Any]:
    """Return the event as Kubernetes' audit.k8s.io/v1 spells it, at the level Metadata."""
    document: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": event.id,
        "stage": event.stage,
        "requestURI": event.uri,
        "verb": event.verb,
        "user": _user(event.user),
    }
    optional = {
        "impersonatedUser": None if event.impersonated is None else _user(event.impersonated),
        "sourceIPs": list(event.sources),
        "userAgent": event.user_agent,
        "objectRef": event.object,
        "responseStatus": _status(event),
    }
    document |= {key: value for key, value in optional.items() if value}
    document["requestReceivedTimestamp"] = _timestamp(event.received)
    document["stageTimestamp"] = _timestamp(event.completed)
    if event.annotations:
        document["annotations"] = event.annotations
    return document


def _status(event: AuditEvent) -> dict[str, Any]:
    status: dict[str, Any] = {"metadata": {}}
    if event.code >= 400:
        failure = {"status": "Failure", "message": event.message, "reason": event.reason}
        status |= {key: value for key, value in failure.items() if value}
    return status | {"code": event.code}


def _user(user: User) -> dict[str, Any]:
    info = {
        "username": user.name,
        "uid": user.uid,
        "groups": user.groups,
        "extra": dict(user.extra),
    }
    return {key: value for key, value in info.items() if value}


def _uri(http: HttpRequest) -> str:
    if not http.query_string:
        return http.path
    parts = http.query_string.split("&")
    return f"{http.path}?{'&'.join(map(_disarmed, parts))}"


def _disarmed(parameter: str) -> str:
    """Return a query parameter, its value hidden if the name suggests a credential."""
    name, equals, _ = parameter.partition("=")
    spelled = unquote_plus(name).lower()
    secret = any(word in spelled for word in _SECRET_PARAMETERS)
    return f"{name}{equals}***" if secret and equals else parameter


def _sources(headers: Mapping[str, str], peer: str) -> tuple[str, ...]:
    """Return the addresses that proxies claim, then the peer's own, which it cannot forge."""
    found = [_address(part) for part in headers.get("x-forwarded-for", "").split(",")[:16]]
    chain = [address for address in found if address]
    real = _address(headers.get("x-real-ip", ""))
    if real and real not in chain:
        chain.append(real)
    if peer and (not chain or chain[-1] != peer):
        chain.append(peer)
    return tuple(chain)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return ""


def _shortened(agent: str) -> str:
    if len(agent) <= USER_AGENT_LENGTH:
        return agent
    return f"{agent[:USER_AGENT_LENGTH]}...TRUNCATED"


def _timestamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


# Writing.


class Rotation(msgspec.Struct, frozen=True):
    """The size at which a file is set aside, and how many older files are kept."""

    max_bytes: int = 100 << 20
    backups: int = 10


class AuditLog:
    """Takes events without waiting for the disk; one thread writes them."""

    def __init__(self, path: Path, rotation: Rotation | None = None) -> None:
        self._waiting: queue.SimpleQueue[AuditEvent | None] = queue.SimpleQueue()
        self._file = _File(path, rotation or Rotation())
        # Now, so that the start of the server fails if the file cannot be written.
        self._file.open()
        self.dropped = 0
        """Events that were lost because the disk did not keep up or failed."""
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._thread.start()

    def add(self, event: AuditEvent) -> None:
        """Have an event written, soon and by the thread."""
        if self._waiting.qsize() >= WAITING:
            self.dropped += 1
        else:
            self._waiting.put(event)

    def close(self) -> None:
        """Return when everything that was added is written."""
        self._waiting.put(None)
        self._thread.join()

    def _write(self) -> None:
        failing = False
        while (batch := self._batch()) is not None:
            lines, last = batch
            try:
                self._file.write(lines)
                failing = False
            except OSError as error:
                self.dropped += len(lines)
                if not failing:
                    log.error("audit log cannot be written error=%s", error.strerror)
                failing = True
            if last:
                break
        self._file.close()

    def _batch(self) -> tuple[list[bytes], bool] | None:
        """Return the next lines, as many as are waiting, and whether they are the last."""
        event = self._waiting.get()
        lines: list[bytes] = []
        while event is not None:
            lines.append(msgspec.json.encode(document_of(event)) + b"\n")
            if len(lines) == 1000 or self._waiting.empty():
                return lines, False
            event = self._waiting.get()
        return (lines, True) if lines else None


class _File:
    """A file that only its owner may read, renamed to .1, .2 and so on when it is full."""

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self._path = path
        self._rotation = rotation
        self._file: BinaryIO | None = None
        self._size = 0

    def open(self) -> None:
        """Open the file; OSError if it cannot be written."""
        self._opened()

    def write(self, lines: list[bytes]) -> None:
        file = self._opened()
        for line in lines:
            if self._size and self._size + len(line) > self._rotation.max_bytes:
                self._rotate()
                file = self._opened()
            file.write(line)
            self._size += len(line)
        file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> BinaryIO:
        if self._file is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
            os.fchmod(descriptor, 0o600)
            self._file = os.fdopen(descriptor, "ab")
            self._size = self._file.seek(0, os.SEEK_END)
        return self._file

    def _rotate(self) -> None:
        self.close()
        if not self._rotation.backups:
            self._path.unlink()
            return
        for number in range(self._rotation.backups - 1, 0, -1):
            older = self._backup(number)
            if older.exists():
                older.replace(self._backup(number + 1))
        self._path.replace(self._backup(1))

    def _backup(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
