"""Starting a damaged cluster: the error names the lost file and the repair, and nothing is
replaced."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from kedge.cli.cluster import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.attacks.conftest import User

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster to be damaged has to be our own"
)

UP = ("up", "--nodes=0")
EVERY_USER = pytest.mark.parametrize(
    "module_user", [0, 65534], ids=["root", "user"], indirect=True, scope="module"
)
"""For what depends on who may read and write which file; the rest is decided before that."""


class Wreck:
    """A cluster that has run, as often as it is asked for."""

    def __init__(self, user: User, kill: Callable[[Path], int]) -> None:
        self.user = user
        self.kill = kill
        self.state = user.home / "states" / "kedge" / "default"
        self._stopped = user.home / "stopped"
        self._killed = user.home / "killed"
        user.does(*UP)
        self.create("old")
        self._wait_for_keys()
        user.does("down")
        self._keep(self._stopped)
        user.does(*UP)
        # In the write-ahead log, and nowhere else.
        self.create("new")
        kill(self.state)
        self._keep(self._killed)

    def _wait_for_keys(self) -> None:
        """A server is ready before the key exists that signs tokens of service accounts."""
        for _ in range(2000):
            if (self.state / "pki" / "sa.pub").exists():
                return
            time.sleep(0.01)
        raise AssertionError("no key for service accounts was made")

    def create(self, name: str) -> None:
        done = self.user.kubectl("create", "configmap", name)
        assert done.returncode == 0, done.stderr

    def names(self) -> set[str]:
        found = self.user.kubectl("get", "configmaps", "-o", "name").stdout.split()
        return {name.split("/")[1] for name in found} - {"kube-root-ca.crt"}

    def stopped(self) -> Path:
        """The cluster as 'kedge down' left it."""
        return self._restore(self._stopped)

    def killed(self) -> Path:
        """The cluster as `kill -9` left it."""
        return self._restore(self._killed)

    def _keep(self, place: Path) -> None:
        subprocess.run(["cp", "-a", self.state, place], check=True)

    def _restore(self, place: Path) -> Path:
        shutil.rmtree(self.state, ignore_errors=True)
        subprocess.run(["cp", "-a", place, self.state], check=True)
        return self.state

    def starts(self) -> str:
        return self.user.does(*UP)

    def refuses(self) -> str:
        """What is said when it does not start; by then nothing has been changed."""
        before = contents(self.state)
        # 1 if the command itself sees the damage, 125 if the server does.
        said = self.user.fails(*UP, codes=(1, 125))
        assert process.running(self.state) is None
        assert contents(self.state) == before
        return said


def contents(state: Path) -> dict[str, str]:
    """All that a cluster is made of; an empty log is as good as none."""
    parts = [state / "cluster.json", state / "token", *state.glob("store.db*")]
    parts += (part for part in (state / "pki").rglob("*") if part.is_file())
    volatile = ("-shm", ".lock")
    return {
        str(part.relative_to(state)): hashlib.sha256(part.read_bytes()).hexdigest()
        for part in parts
        if part.exists()
        and not part.name.endswith(volatile)
        and (part.stat().st_size > 0 or not part.name.endswith("-wal"))
    }


@pytest.fixture(scope="module")
def kept_wreck(module_user: User, kill: Callable[[Path], int]) -> Wreck:
    return Wreck(module_user, kill)


@pytest.fixture
def wreck(kept_wreck: Wreck) -> Iterator[Wreck]:
    yield kept_wreck
    if process.running(kept_wreck.state):
        kept_wreck.user.kedge("down")


def emptied(state: Path, *names: str) -> None:
    for name in names:
        os.truncate(state / name, 0)


def removed(state: Path, *names: str) -> None:
    for name in names:
        (state / name).unlink(missing_ok=True)


@pytest.mark.parametrize("damage", [emptied, removed])
def test_a_lost_store_is_not_taken_for_an_empty_one(
    wreck: Wreck, damage: Callable[..., None]
) -> None:
    damage(wreck.stopped(), "store.db")
    said = wreck.refuses()
    assert "store.db, which holds all objects of the cluster, is missing or empty" in said
    assert "--purge" in said
    # Nor if everything is gone that a store leaves.
    removed(wreck.state, "store.db", "store.db.lock")
    assert "is missing or empty" in wreck.refuses()
    wreck.stopped()
    wreck.starts()
    assert wreck.names() == {"old"}


def test_a_store_that_was_cut_off_is_refused(wreck: Wreck) -> None:
    store = wreck.stopped() / "store.db"
    os.truncate(store, store.stat().st_size // 2)
    said = wreck.refuses()
    assert "is damaged: it was cut off after" in said
    assert "Put back a copy" in said


@EVERY_USER
def test_a_store_with_bad_pages_is_refused(wreck: Wreck) -> None:
    store = wreck.stopped() / "store.db"
    with store.open("r+b") as file:
        for page in range(2, 60):
            file.seek(page * 4096)
            file.write(os.urandom(4096))
    assert "is damaged" in wreck.refuses()


def test_a_file_that_is_no_store_is_refused(wreck: Wreck) -> None:
    (wreck.stopped() / "store.db").write_text("dear diary, " * 1000)
    assert "is not a kedge store" in wreck.refuses()


@EVERY_USER
@pytest.mark.parametrize("damage", [emptied, removed])
def test_a_lost_write_ahead_log_is_noticed(wreck: Wreck, damage: Callable[..., None]) -> None:
    """The writes in it were acknowledged."""
    damage(wreck.killed(), "store.db-wal")
    said = wreck.refuses()
    assert "writes up to" in said
    assert "store.db-wal is missing or cut off" in said
    # To go on without them is a decision, and the message names what it takes.
    removed(wreck.state, "store.db.lock", "store.db-shm")
    wreck.starts()
    assert wreck.names() == {"old"}


def test_a_log_that_was_copied_by_somebody_else_is_not_missed(wreck: Wreck) -> None:
    """SQLite's own shell copies and deletes it, and nothing is lost."""
    store = wreck.killed() / "store.db"
    connection = sqlite3.connect(store)
    connection.execute("SELECT count(*) FROM sqlite_schema")
    connection.close()
    assert not (wreck.state / "store.db-wal").exists()
    for file in wreck.state.glob("store.db*"):
        os.chown(file, wreck.user.uid, wreck.user.uid)
    wreck.starts()
    assert wreck.names() == {"old", "new"}


def test_a_log_without_its_store_is_refused(wreck: Wreck) -> None:
    emptied(wreck.killed(), "store.db")
    assert "store.db" in wreck.refuses()


@pytest.mark.parametrize("damage", [emptied, removed])
@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["pki/ca.key"], "ca.key, the key of the cluster's certificate authority, is missing"),
        (["pki/ca.crt", "pki/ca.key"], "ca.key, the key of the cluster's certificate authority"),
        (["pki/sa.key"], "sa.key, which signs the tokens of service accounts, is missing"),
    ],
)
def test_lost_keys_are_not_replaced(
    wreck: Wreck, damage: Callable[..., None], files: list[str], said: str
) -> None:
    damage(wreck.stopped(), *files)
    assert said in wreck.refuses()


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("ca.crt", "garbage", "ca.crt holds no certificate"),
        ("ca.key", "garbage", "ca.key holds no private key"),
        ("ca.key", "server.key", "ca.key does not belong to ca.crt"),
        ("sa.key", "garbage", "it holds no private key"),
        ("sa.pub", "garbage", "it does not belong to sa.pub"),
    ],
)
def test_keys_that_do_not_fit_are_refused(wreck: Wreck, file: str, content: str, said: str) -> None:
    pki = wreck.stopped() / "pki"
    other = pki / content
    (pki / file).write_text(other.read_text() if other.exists() else content)
    complaint = wreck.refuses()
    assert said in complaint
    assert "Traceback" not in complaint


def test_a_certificate_of_the_server_that_does_not_fit_its_key_is_made_again(wreck: Wreck) -> None:
    pki = wreck.stopped() / "pki"
    (pki / "server.key").write_text((pki / "node-client.key").read_text())
    wreck.starts()
    assert wreck.names() == {"old"}


@EVERY_USER
def test_a_lost_certificate_of_the_authority_is_made_again_from_its_key(wreck: Wreck) -> None:
    removed(wreck.stopped(), "pki/ca.crt")
    assert "ca.crt was lost: it is made again from its key" in wreck.starts()
    assert wreck.names() == {"old"}


def test_a_lost_token_is_made_again_and_that_is_said(wreck: Wreck) -> None:
    # Removed or emptied: `kedge.cli.cluster.integrity` makes no difference between them.
    emptied(wreck.stopped(), "token")
    assert "a new administrator's token is made" in wreck.starts()
    assert wreck.names() == {"old"}


@pytest.mark.parametrize("content", ["", '{"layout": 1, "na', None])
def test_a_torn_record_of_the_cluster_is_made_again_and_that_is_said(
    wreck: Wreck, content: str | None
) -> None:
    record = wreck.stopped() / "cluster.json"
    if content is None:
        record.unlink()
    else:
        record.write_text(content)
    done = wreck.user.kedge(*UP)
    assert done.returncode == 0, done.stderr
    assert "made again for the cluster" in done.stderr
    assert wreck.names() == {"old"}
    # And is as strict as before about all else.
    wreck.user.does("down")
    emptied(wreck.state, "store.db")
    assert "is missing or empty" in wreck.refuses()


@EVERY_USER
def test_a_cluster_with_a_torn_record_can_be_deleted(wreck: Wreck) -> None:
    (wreck.stopped() / "cluster.json").write_text("{")
    wreck.user.does("down", "--purge")
    assert not wreck.state.exists()


def test_a_newer_layout_is_refused(wreck: Wreck) -> None:
    record = wreck.stopped() / "cluster.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "layout": 99}))
    said = wreck.refuses()
    assert "arranged by another version of kedge (layout 99, this one knows" in said


def test_a_newer_layout_of_the_store_is_refused(wreck: Wreck) -> None:
    connection = sqlite3.connect(wreck.stopped() / "store.db")
    connection.execute("PRAGMA user_version = 2")
    connection.commit()
    connection.close()
    for file in wreck.state.glob("store.db*"):
        os.chown(file, wreck.user.uid, wreck.user.uid)
    assert "has storage layout 2" in wreck.refuses()


def test_a_cluster_of_before_these_records_is_judged_by_what_it_has(wreck: Wreck) -> None:
    record = wreck.stopped() / "cluster.json"
    older = {k: v for k, v in json.loads(record.read_text()).items() if k != "kept"}
    record.write_text(json.dumps({**older, "layout": 1}))
    emptied(wreck.state, "store.db")
    assert "is missing or empty" in wreck.refuses()


@EVERY_USER
def test_a_killed_server_starts_again_at_once(wreck: Wreck) -> None:
    wreck.killed()
    wreck.starts()
    assert wreck.names() == {"old", "new"}
    wreck.kill(wreck.state)
    assert "already running" not in wreck.starts()
    assert wreck.names() == {"old", "new"}


def test_a_cluster_in_memory_needs_no_store(wreck: Wreck) -> None:
    wreck.user.does("down", "--purge")
    for _ in range(2):
        wreck.user.does(*UP, "--store=memory")
        wreck.user.does("down")
    # The first store of its life is none that was lost.
    wreck.starts()
