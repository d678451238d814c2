import pytest

from kedge.storage.postgresql.failures import (
    PostgresFailure,
    PostgresFailureKind,
    failure_kind,
    store_error,
)
from kedge.storage.store import (
    DiskFull,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    ValueTooLarge,
    WriteOutcomeUnknown,
)


@pytest.mark.parametrize(
    ("state", "text", "kind"),
    [
        ("57P03", "the database system is starting up", PostgresFailureKind.WITHOUT_EFFECT),
        ("25006", "cannot execute UPDATE in a read-only transaction", "WITHOUT_EFFECT"),
        ("40P01", "deadlock detected", "WITHOUT_EFFECT"),
        ("53300", "sorry, too many clients already", "NO_CONNECTION_LEFT"),
        ("57P01", "terminating connection due to administrator command", "UNKNOWN"),
        ("57P02", "terminating connection because of crash of another process", "UNKNOWN"),
        ("57014", "canceling statement due to user request", "UNKNOWN"),
        ("08006", "connection failure", "UNKNOWN"),
        ("53100", "could not extend file: No space left on device", "FULL"),
        ("58030", "could not write: No space left on device", "FULL"),
        ("58030", "could not write: Input/output error", "OTHER"),
        ("28P01", "password authentication failed", "DENIED"),
        ("28000", "no pg_hba.conf entry for host, no encryption", "UNENCRYPTED"),
        ("3D000", 'database "x" does not exist', "NO_DATABASE"),
        ("42501", "permission denied for database", "FORBIDDEN"),
        ("42P01", 'relation "kedge.head" does not exist', "GONE"),
        ("XX001", "invalid page in block 0", "DAMAGED"),
        ("22000", "anything else", "OTHER"),
    ],
)
def test_errors_are_told_apart_by_their_state(
    state: str, text: str, kind: PostgresFailureKind | str
) -> None:
    wanted = PostgresFailureKind[kind] if isinstance(kind, str) else kind
    assert failure_kind(state, text) is wanted


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("WITHOUT_EFFECT", StoreUnavailable, "pg_isready"),
        ("NO_CONNECTION_LEFT", StoreUnavailable, "needs four"),
        ("UNKNOWN", WriteOutcomeUnknown, "Read the object"),
        ("FULL", DiskFull, "Make space there"),
        ("TOO_LARGE", ValueTooLarge, "9 bytes"),
        ("DENIED", StoreError, "pg_hba.conf"),
        ("UNENCRYPTED", StoreError, "--postgresql-cafile"),
        ("NO_DATABASE", StoreError, "createdb"),
        ("FORBIDDEN", StoreError, "CREATE SCHEMA"),
        ("DAMAGED", StoreDamaged, "Restore a backup"),
        ("OTHER", StoreError, "postgresql at db:1: why"),
    ],
)
def test_users_learn_what_to_do(kind: str, error: type[StoreError], words: str) -> None:
    shown = store_error(PostgresFailure(PostgresFailureKind[kind], "db:1", "why"), 9)
    assert type(shown) is error
    assert words in str(shown)
    assert "db:1" in str(shown)


def test_a_request_without_effect_has_none_when_its_answer_is_lost() -> None:
    lost = PostgresFailure(PostgresFailureKind.UNKNOWN, "db:1", "why")
    assert lost.without_effect().kind is PostgresFailureKind.WITHOUT_EFFECT
    full = PostgresFailure(PostgresFailureKind.FULL, "db:1", "why")
    assert full.without_effect() is full
