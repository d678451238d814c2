import pytest

from kedge.storage.etcd.failures import EtcdFailure, FailureKind, failure_kind, store_error
from kedge.storage.store import (
    DiskFull,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    ValueTooLarge,
    WriteOutcomeUnknown,
)

KINDS = [
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", "COMPACTED"),
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", "FUTURE"),
    ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", "FULL"),
    ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", "WITHOUT_EFFECT"),
    ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (9 vs. 8)", "TOO_LARGE"),
    ("INVALID_ARGUMENT", "etcdserver: request is too large", "TOO_LARGE"),
    ("UNAUTHENTICATED", "etcdserver: invalid auth token", "TOKEN"),
    ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", "TOKEN"),
    ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID", "DENIED"),
    ("PERMISSION_DENIED", "etcdserver: permission denied", "DENIED"),
    ("NOT_FOUND", "etcdserver: requested lease not found", "LEASE"),
    ("UNAVAILABLE", "etcdserver: no leader", "WITHOUT_EFFECT"),
    ("UNAVAILABLE", "failed to connect to all addresses", "WITHOUT_EFFECT"),
    ("UNAVAILABLE", "etcdserver: leader changed", "UNKNOWN"),
    ("UNAVAILABLE", "etcdserver: request timed out", "UNKNOWN"),
    ("UNAVAILABLE", "Socket closed", "UNKNOWN"),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", "UNKNOWN"),
    ("UNKNOWN", "context deadline exceeded", "UNKNOWN"),
    ("INTERNAL", "Received RST_STREAM with error code 2", "UNKNOWN"),
    ("DATA_LOSS", "etcdserver: corrupt cluster", "CORRUPT"),
    ("INVALID_ARGUMENT", "etcdserver: key is not provided", "OTHER"),
]


@pytest.mark.parametrize(("code", "text", "kind"), KINDS)
def test_an_error_of_etcd_has_its_kind(code: str, text: str, kind: str) -> None:
    assert failure_kind(code, text) is FailureKind[kind]


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("WITHOUT_EFFECT", StoreUnavailable, "does not answer: why"),
        ("UNKNOWN", WriteOutcomeUnknown, "Read the object to see whether it happened"),
        ("FULL", DiskFull, '"etcdctl alarm disarm"'),
        ("TOO_LARGE", ValueTooLarge, "the object has 7 bytes"),
        ("DENIED", StoreError, "--etcd-credentials-file"),
        ("CORRUPT", StoreDamaged, '"etcdctl member remove"'),
        ("OTHER", StoreError, "why"),
    ],
)
def test_a_failure_tells_users_of_the_store_what_to_do(
    kind: str, error: type[StoreError], words: str
) -> None:
    found = store_error(EtcdFailure(FailureKind[kind], "host:1", "why"), 7)
    assert type(found) is error or kind == "OTHER"
    assert isinstance(found, error)
    assert words in str(found)
