"""The audit log: who asked for what, and what became of it; one JSON object per line.

Bodies and credentials are never in it: an event is made from the few things named below.
"""

import ipaddress
import logging
import os
import queue
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote_plus

import msgspec

from kedge.apiserver.request import Request, User
from kedge.machinery.errors import StatusError
from kedge.web.message import HttpRequest

log = logging.getLogger(__name__)

USER_AGENT_LENGTH: Final = 1024
WAITING: Final = 20_000
"""Events that may wait for the disk; what comes on top of them is counted and dropped."""
STARTED: Final = "ResponseStarted"
COMPLETE: Final = "ResponseComplete"
NOBODY: Final = User("")
"""Whoever could not say who they are."""
_SECRET_PARAMETERS: Final = ("token", "password", "secret", "key", "authorization")
_SECRET_RESOURCES: Final = frozenset(("secrets", "tokenreviews"))
_SECRET_SUBRESOURCES: Final = frozenset(("token",))


@dataclass(slots=True)
class Entry:
    """What is kept of one request, as plain values: nothing here refers to the request itself."""

    uri: str
    verb: str
    received: datetime
    sources: tuple[str, ...] = ()
    user_agent: str = ""
    user: User = NOBODY
    impersonated: User | None = None
    object: Mapping[str, str] | None = None
    """What the request is about; None if it names no resource."""
    discreet: bool = False
    """Whether even error messages might say too much."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    annotations: dict[str, str] = field(default_factory=dict)
    stage: str = COMPLETE
    code: int = 0
    reason: str = ""
    message: str = ""
    completed: datetime | None = None

    def decided(self, allowed: bool, reason: str) -> None:
        """Note what authorization said, and why."""
        self.annotations["authorization.k8s.io/decision"] = "allow" if allowed else "forbid"
        self.annotations["authorization.k8s.io/reason"] = reason

    def failed(self, error: StatusError) -> None:
        """Note why the request failed."""
        self.reason = error.reason
        self.message = "" if self.discreet else error.message

    def ended(self, code: int, at: datetime, *, streaming: bool = False) -> None:
        """Note how the request was answered, or that the answer has begun and goes on."""
        self.code = code
        self.completed = at
        self.stage = STARTED if streaming else COMPLETE


def begun(http: HttpRequest, source: str, at: datetime) -> Entry:
    """The entry of a request that has just come in; `user` is set when it is known."""
    return Entry(
        uri=_uri(http),
        verb=http.method.lower(),
        received=at,
        sources=_sources(http.headers, source),
        user_agent=_shortened(http.headers.get("user-agent", "")),
    )


def about(entry: Entry, request: Request) -> None:
    """Add what a request that names a resource is about."""
    resource = request.resource
    entry.verb = request.verb
    entry.discreet = (
        resource.plural in _SECRET_RESOURCES or request.subresource in _SECRET_SUBRESOURCES
    )
    named = {
        "resource": resource.plural,
        "namespace": request.namespace,
        "name": request.name,
        "apiGroup": resource.group,
        "apiVersion": resource.version,
        "subresource": request.subresource,
    }
    entry.object = {key: value for key, value in named.items() if value}


def event(entry: Entry) -> dict[str, Any]:
    """The entry as Kubernetes' audit.k8s.io/v1 spells it, at the level Metadata."""
    document: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": entry.id,
        "stage": entry.stage,
        "requestURI": entry.uri,
        "verb": entry.verb,
        "user": _user(entry.user),
    }
    optional = {
        "impersonatedUser": None if entry.impersonated is None else _user(entry.impersonated),
        "sourceIPs": list(entry.sources),
        "userAgent": entry.user_agent,
        "objectRef": entry.object,
        "responseStatus": _status(entry),
    }
    document |= {key: value for key, value in optional.items() if value}
    document["requestReceivedTimestamp"] = _timestamp(entry.received)
    document["stageTimestamp"] = _timestamp(entry.completed or entry.received)
    if entry.annotations:
        document["annotations"] = entry.annotations
    return document


def _status(entry: Entry) -> dict[str, Any]:
    status: dict[str, Any] = {"metadata": {}}
    if entry.code >= 400:
        told = {"status": "Failure", "message": entry.message, "reason": entry.reason}
        status |= {key: value for key, value in told.items() if value}
    return status | {"code": entry.code}


def _user(user: User) -> dict[str, Any]:
    told = {
        "username": user.name,
        "uid": user.uid,
        "groups": user.groups,
        "extra": dict(user.extra),
    }
    return {key: value for key, value in told.items() if value}


def _uri(http: HttpRequest) -> str:
    if not http.query_string:
        return http.path
    parts = http.query_string.split("&")
    return f"{http.path}?{'&'.join(map(_disarmed, parts))}"


def _disarmed(parameter: str) -> str:
    """A query parameter without its value if the name suggests a credential."""
    name, equals, _ = parameter.partition("=")
    spelled = unquote_plus(name).lower()
    secret = any(word in spelled for word in _SECRET_PARAMETERS)
    return f"{name}{equals}***" if secret and equals else parameter


def _sources(headers: Mapping[str, str], peer: str) -> tuple[str, ...]:
    """Addresses that proxies vouch for, then the peer's own, which cannot be made up."""
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


@dataclass(frozen=True)
class Rotation:
    """When a file is set aside, and how many of those are kept."""

    max_bytes: int = 100 << 20
    backups: int = 10


class AuditLog:
    """Takes entries without ever waiting; one thread writes them."""

    def __init__(self, path: Path, rotation: Rotation | None = None) -> None:
        self._waiting: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._file = _File(path, rotation or Rotation())
        # Now, so that a file that cannot be written is noticed by whoever starts the server.
        self._file.open()
        self.dropped = 0
        """Entries that were lost because the disk did not keep up or failed."""
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._thread.start()

    def add(self, entry: Entry) -> None:
        """Have an entry written; it must not be changed any more."""
        if self._waiting.qsize() >= WAITING:
            self.dropped += 1
        else:
            self._waiting.put(entry)

    def close(self) -> None:
        """Return when everything that was added is on its way to the disk."""
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
        """The next lines, as many as are there; and whether they are the last."""
        entry = self._waiting.get()
        lines: list[bytes] = []
        while entry is not None:
            lines.append(msgspec.json.encode(event(entry)) + b"\n")
            if len(lines) == 1000 or self._waiting.empty():
                return lines, False
            entry = self._waiting.get()
        return (lines, True) if lines else None


class _File:
    """A file that only its owner reads, renamed to .1, .2 and so on when it has grown."""

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self._path = path
        self._rotation = rotation
        self._file: BinaryIO | None = None
        self._size = 0

    def open(self) -> None:
        """Raises OSError if the file cannot be written."""
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
