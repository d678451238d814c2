"""What users are told when a server does not start."""

import errno
from pathlib import Path

import pytest

from kedge.apiserver import pki
from kedge.apiserver.authentication import keys, token_file
from kedge.apiserver.config import ServerConfig
from kedge.apiserver.startup import explain, is_permanent
from kedge.storage.store import (
    RevisionCompacted,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    WriteOutcomeUnknown,
)

CONFIG = ServerConfig(state=Path("/state"), host="127.0.0.1", port=443)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRINUSE, "in use"), "127.0.0.1 port 443 is in use by another program"),
        (PermissionError(errno.EACCES, "denied"), "may not listen on 127.0.0.1 port 443"),
        (OSError(errno.EADDRNOTAVAIL, "no"), "127.0.0.1 is not an address of this machine"),
        (PermissionError(errno.EACCES, "Permission denied", "/state/x"), "/state/x: Permission"),
        (StoreError("the store is from another age"), "the store is from another age"),
        (pki.AuthorityError(Path("/state/pki"), "ca.key is missing"), "ca.key is missing"),
        (
            keys.SigningKeyError(Path("/state/pki/sa.key"), "not PEM"),
            "sa.key cannot be used: not PEM",
        ),
        (
            token_file.TokenFileError("token file '/t' is no CSV file"),
            "token file '/t' is no CSV file",
        ),
    ],
)
def test_what_a_user_can_put_right_is_explained(error: Exception, said: str) -> None:
    assert said in explain(error, CONFIG)
    assert said in explain(ExceptionGroup("tasks", [ExceptionGroup("more", [error])]), CONFIG)


def test_a_bug_is_not_explained_away() -> None:
    assert explain(KeyError("x"), CONFIG) == ""
    several = ExceptionGroup("tasks", [OSError(errno.EADDRINUSE, ""), KeyError("x")])
    assert explain(several, CONFIG) == ""


@pytest.mark.parametrize(
    "error",
    [
        RevisionCompacted(5, 9),
        WriteOutcomeUnknown("etcd did not confirm the write"),
        StoreUnavailable("etcd does not answer"),
    ],
)
def test_a_server_that_lost_touch_with_its_store_is_started_again(error: StoreError) -> None:
    assert not is_permanent(error)
    assert is_permanent(StoreDamaged("pages are lost"))
