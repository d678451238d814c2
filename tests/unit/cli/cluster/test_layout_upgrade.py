"""A directory of an older kedge is converted."""

import contextlib
import json
import sqlite3
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kedge.cli.backup import archive
from kedge.cli.cluster import integrity, registry, state
from kedge.cli.cluster.conversions import LAYOUT
from kedge.cli.cluster.layout_upgrade import upgrade
from kedge.cli.failure import Failure
from kedge.machinery import reserve_files
from kedge.storage.sqlite import statements

NOW = datetime(2026, 1, 31, 10, 15, tzinfo=UTC)
COPY = "layout-1-20260131T101500Z.kedge"
RECORD = {
    "layout": 1,
    "name": "blue",
    "port": 7001,
    "kubeconfig": "",
    "previousContext": "",
    "kubeconfigExisted": True,
}
"""As the first kedge wrote it."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The directory of a cluster that the first kedge has run and stopped."""
    directory = tmp_path / "root" / "blue"
    (directory / "pki").mkdir(parents=True)
    directory.chmod(0o700)
    (directory / "cluster.json").write_text(json.dumps(RECORD))
    for name in ("pki/ca.crt", "pki/ca.key", "pki/server.crt", "pki/server.key", "token"):
        (directory / name).write_text(name)
    # Without the newest revision, which a later kedge added.
    (directory / "store.db.lock").write_text("12345")
    (directory / "change.lock").touch()
    with contextlib.closing(sqlite3.connect(directory / "store.db")) as store:
        store.executescript(statements.SCHEMA)
        store.execute(
            "INSERT INTO writes VALUES (1, '/registry/configmaps/default/a', 1, 0, 0, '{}', 0)"
        )
        store.commit()
    return directory


def converted(directory: Path) -> tuple[state.ClusterRecord, str]:
    known = state.read(directory)
    assert known is not None
    said: list[str] = []
    return upgrade(directory, known, NOW, said.append), "".join(said)


def test_an_older_directory_is_understood_before_it_is_converted(old: Path) -> None:
    known = state.prepare(old, "blue")
    assert known.layout == 1
    assert known.kept == ("pki/ca.crt", "pki/ca.key", "store.db", "token")
    assert [each.cluster.name for each in registry.every(old.parent)] == ["blue"]
    (old / "store.db").unlink()
    with pytest.raises(Failure, match="although the cluster has run: nothing was changed"):
        integrity.check(old, known, store="sqlite")
    assert json.loads((old / "cluster.json").read_text()) == RECORD


def test_it_is_converted_and_a_copy_is_kept(old: Path) -> None:
    new, said = converted(old)
    assert new == state.read(old)
    assert (new.layout, new.port, new.has_run) == (LAYOUT, 7001, True)
    assert said == (
        'Converted cluster "blue" from layout 1 to 2: cluster.json lists the files that a start'
        f" must not replace.\nThe cluster as it was is in {old}/copies/{COPY}: 'kedge restore'"
        " takes it."
    )
    copy = old / "copies" / COPY
    assert copy.stat().st_mode & 0o777 == 0o600
    assert archive.describe(copy).layout == 1
    archive.restore(
        copy, archive.describe(copy), name="back", directory=old.parent / "back", root=old.parent
    )
    with contextlib.closing(sqlite3.connect(old.parent / "back" / "store.db")) as store:
        assert store.execute("SELECT key FROM current").fetchall() == [
            ("/registry/configmaps/default/a",)
        ]


def test_a_converted_directory_is_left_alone(old: Path) -> None:
    converted(old)
    assert converted(old)[1] == ""
    assert [each.name for each in (old / "copies").iterdir()] == [COPY]


def test_a_cluster_that_kept_its_objects_in_memory_is_converted_too(old: Path) -> None:
    for name in ("store.db", "store.db.lock"):
        (old / name).unlink()
    new, _ = converted(old)
    assert new.kept == ("pki/ca.crt", "pki/ca.key", "token")
    with tarfile.open(old / "copies" / COPY) as packed:
        assert "token" in packed.getnames()


def test_without_space_for_the_copy_nothing_is_changed(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve_files, "free_bytes", lambda _: 1 << 20)
    with pytest.raises(Failure, match=r"4\.\d MiB are needed, 1\.0 MiB are free\. Nothing was ch"):
        converted(old)
    assert json.loads((old / "cluster.json").read_text()) == RECORD
    assert not (old / "copies").exists()


KILLED = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from kedge.cli.backup import archive
from kedge.cli.cluster import layout_upgrade, state
from kedge.machinery import atomic

def die(*_, **__):
    os.kill(os.getpid(), 9)

place, name = sys.argv[2].split(".")
setattr({"os": os, "archive": archive, "Path": Path, "atomic": atomic}[place], name, die)
directory = Path(sys.argv[1])
layout_upgrade.upgrade(directory, state.read(directory), datetime(2025, 1, 1, tzinfo=UTC), print)
"""


@pytest.mark.parametrize(
    "point",
    # In the database copy, in the packed file before it has its name, and in the record.
    ["archive.copy_database", "os.fsync", "os.link", "atomic.write", "Path.replace"],
)
def test_after_a_kill_the_next_start_finishes(old: Path, point: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(old), point], check=False)
    assert done.returncode == -9
    assert json.loads((old / "cluster.json").read_text()) == RECORD
    assert converted(old)[0].layout == LAYOUT
    names = [each.name for each in (old / "copies").iterdir()]
    assert COPY in names
    assert all(archive.describe(old / "copies" / each).name == "blue" for each in names)
    assert list(old.glob(".backup-*")) == []
