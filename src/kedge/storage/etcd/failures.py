"""Errors of etcd and of the connection to it, by what the store can do about them."""

from enum import Enum, auto
from typing import Final, NamedTuple

from kedge.storage.store import (
    DiskFull,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    ValueTooLarge,
    WriteOutcomeUnknown,
)


class FailureKind(Enum):
    """The reactions of the store to an error."""

    COMPACTED = auto()
    FUTURE = auto()
    FULL = auto()
    TOO_LARGE = auto()
    TOKEN = auto()
    """A new token is needed."""
    DENIED = auto()
    LEASE = auto()
    """The lease of the key has expired."""
    WITHOUT_EFFECT = auto()
    """The request had no effect: repeat it, perhaps at another member."""
    UNKNOWN = auto()
    """The member did not say whether the request had an effect."""
    CORRUPT = auto()
    OTHER = auto()


class EtcdFailure(StoreError):
    """A request that failed."""

    def __init__(self, kind: FailureKind, endpoint: str, text: str) -> None:
        super().__init__(f"etcd at {endpoint}: {text}")
        self.kind = kind
        self.endpoint = endpoint
        self.text = text

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in (FailureKind.WITHOUT_EFFECT, FailureKind.UNKNOWN)


class _Rule(NamedTuple):
    """An error by its gRPC code (any if empty) and a part of its text."""

    code: str
    text: str
    kind: FailureKind


_RULES: Final = (
    # The first two have the same code.
    _Rule("OUT_OF_RANGE", "has been compacted", FailureKind.COMPACTED),
    _Rule("OUT_OF_RANGE", "future revision", FailureKind.FUTURE),
    _Rule("RESOURCE_EXHAUSTED", "database space exceeded", FailureKind.FULL),
    _Rule("RESOURCE_EXHAUSTED", "too many requests", FailureKind.WITHOUT_EFFECT),
    _Rule("RESOURCE_EXHAUSTED", "larger than max", FailureKind.TOO_LARGE),
    _Rule("INVALID_ARGUMENT", "request is too large", FailureKind.TOO_LARGE),
    _Rule("UNAUTHENTICATED", "", FailureKind.TOKEN),
    _Rule("INVALID_ARGUMENT", "auth store is old", FailureKind.TOKEN),
    _Rule("INVALID_ARGUMENT", "user name is empty", FailureKind.DENIED),
    _Rule("INVALID_ARGUMENT", "authentication failed", FailureKind.DENIED),
    _Rule("FAILED_PRECONDITION", "authentication is not enabled", FailureKind.DENIED),
    _Rule("PERMISSION_DENIED", "", FailureKind.DENIED),
    _Rule("NOT_FOUND", "lease not found", FailureKind.LEASE),
    _Rule("DATA_LOSS", "", FailureKind.CORRUPT),
    # Without a leader nothing is proposed; without a connection nothing is sent.
    _Rule("UNAVAILABLE", "etcdserver: no leader", FailureKind.WITHOUT_EFFECT),
    _Rule("UNAVAILABLE", "failed to connect", FailureKind.WITHOUT_EFFECT),
    _Rule("UNAVAILABLE", "DNS resolution failed", FailureKind.WITHOUT_EFFECT),
    _Rule("UNAVAILABLE", "", FailureKind.UNKNOWN),
    _Rule("DEADLINE_EXCEEDED", "", FailureKind.UNKNOWN),
    _Rule("CANCELLED", "", FailureKind.UNKNOWN),
    # A deadline that etcd notices first is an error of Go without a code of its own; INTERNAL is
    # that of a stream which was reset.
    _Rule("UNKNOWN", "", FailureKind.UNKNOWN),
    _Rule("INTERNAL", "", FailureKind.UNKNOWN),
)


_TLS_ERROR: Final = "(TSI_"
"""A part of what gRPC says if one side refuses the certificate of the other."""


def failure_kind(code: str, text: str) -> FailureKind:
    """Return the kind of an error by the name of its gRPC code and its text."""
    for rule in _RULES:
        if code == rule.code and rule.text in text:
            return rule.kind
    return FailureKind.OTHER


def store_error(failure: EtcdFailure, size: int = 0) -> StoreError:
    """Return an error as users of the store see it; `size` is that of a value to be written."""
    where, text = f"etcd at {failure.endpoint}", failure.text
    match failure.kind:
        case FailureKind.WITHOUT_EFFECT if _TLS_ERROR in text:
            return StoreUnavailable(
                f"{where} does not answer by TLS: {text}. Check that --etcd-cafile is its"
                " certificate authority, and that it trusts the certificate in --etcd-certfile"
            )
        case FailureKind.WITHOUT_EFFECT:
            return StoreUnavailable(
                f'{where} does not answer: {text}. Check "etcdctl endpoint status" for all members,'
                " and start those that are down"
            )
        case FailureKind.UNKNOWN:
            return WriteOutcomeUnknown(
                f"{where} did not confirm the write: {text}. Read the object to see whether it"
                " happened"
            )
        case FailureKind.FULL:
            return DiskFull(
                f"{where} has reached its quota and accepts deletions only: delete objects, then"
                ' run "etcdctl compact", "etcdctl defrag" and "etcdctl alarm disarm", or start etcd'
                " with a larger --quota-backend-bytes"
            )
        case FailureKind.TOO_LARGE:
            return ValueTooLarge(
                f"the object has {size} bytes, more than etcd accepts ({text}): make it smaller, or"
                " start etcd with a larger --max-request-bytes"
            )
        case FailureKind.DENIED | FailureKind.TOKEN:
            return StoreError(
                f"{where} refuses the user of kedge: {text}. The user in --etcd-credentials-file"
                ' needs a role that reads and writes all keys ("etcdctl role grant-permission'
                ' --prefix=true ROLE readwrite \\"\\"")'
            )
        case FailureKind.CORRUPT:
            return StoreDamaged(
                f"{where} reports damaged data: {text}. Remove the damaged member and add it again"
                ' ("etcdctl member remove", "etcdctl member add"), or restore a snapshot'
            )
        case _:
            return StoreError(str(failure))
