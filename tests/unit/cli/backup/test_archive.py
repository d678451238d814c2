"""The file of a backup."""

import io
import sqlite3
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from kedge.cli.backup import archive
from kedge.cli.cluster import registry, state
from kedge.cli.cluster.conversions import LAYOUT
from kedge.cli.failure import Failure

NOW = datetime(2026, 1, 31, 10, 15, tzinfo=UTC)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The directory of a cluster that has run."""
    directory = tmp_path / "root" / "blue"
    record = state.prepare(directory, "blue")
    state.write(directory, msgspec.structs.replace(record, port=7001, kubeconfig="/somewhere"))
    (directory / "pki" / "deep").mkdir(parents=True)
    for name in ("pki/ca.crt", "pki/ca.key", "pki/deep/x.key", "token"):
        (directory / name).write_text(name)
    (directory / "nodes").mkdir()
    store = sqlite3.connect(directory / "store.db")
    store.execute("CREATE TABLE t (n INTEGER)")
    store.commit()
    store.close()
    return directory


def restored(file: Path, root: Path, name: str) -> Path:
    directory = root / name
    archive.restore(file, archive.describe(file), name=name, directory=directory, root=root)
    return directory


def test_a_cluster_is_restored_under_another_name_without_its_port(
    cluster: Path, tmp_path: Path
) -> None:
    file = tmp_path / "b.kedge"
    described = archive.write(cluster, file, NOW)
    assert archive.describe(file) == described
    assert (described.name, described.port, described.made) == ("blue", 7001, NOW)
    assert file.stat().st_mode & 0o777 == 0o600
    green = restored(file, cluster.parent, "green")
    record = state.read(green)
    assert record is not None
    assert (record.name, record.port, record.kubeconfig) == ("green", 0, "")
    assert record.has_run
    assert (green / "pki" / "deep" / "x.key").read_text() == "pki/deep/x.key"
    assert (green / "token").stat().st_mode & 0o777 == 0o600
    assert not (green / "nodes").exists()
    assert [each.cluster.name for each in registry.every(cluster.parent)] == ["blue", "green"]


def test_in_its_own_place_it_has_its_port(cluster: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.kedge"
    archive.write(cluster, file, NOW)
    record = state.read(restored(file, tmp_path / "other", "blue"))
    assert record is not None
    assert record.port == 7001


def test_nothing_is_overwritten(cluster: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.kedge"
    archive.write(cluster, file, NOW)
    before = file.read_bytes()
    with pytest.raises(Failure, match="exists already"):
        archive.write(cluster, file, NOW)
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    with pytest.raises(Failure, match="is not empty"):
        restored(file, cluster.parent, "blue")


def test_a_cluster_without_a_store_cannot_be_backed_up(cluster: Path, tmp_path: Path) -> None:
    (cluster / "store.db").unlink()
    with pytest.raises(Failure, match="keeps its objects in memory, or has never run"):
        archive.write(cluster, tmp_path / "b.kedge", NOW)
    with pytest.raises(Failure, match="holds no cluster"):
        archive.write(tmp_path / "none", tmp_path / "b.kedge", NOW)


def packed(path: Path, *entries: tuple[str, bytes, bytes]) -> Path:
    """Write a tarball of names, contents and types."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content, kind in entries:
            entry = tarfile.TarInfo(name)
            entry.size, entry.type, entry.linkname = len(content), kind, "/etc/passwd"
            tar.addfile(entry, io.BytesIO(content))
    return path


def description(**changes: object) -> tuple[str, bytes, bytes]:
    made = archive.BackupDescription(name="blue", layout=LAYOUT, made=NOW)
    fields = {**msgspec.to_builtins(made), **changes}
    return "backup.json", msgspec.json.encode(fields), tarfile.REGTYPE


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("other", b"", tarfile.REGTYPE)], "is not a backup of kedge"),
        ([("backup.json", b"[", tarfile.REGTYPE)], "is not a backup of kedge"),
        ([("backup.json", b"[]", tarfile.REGTYPE)], "format None"),
        ([description(format=2)], "another version of kedge .format 2"),
        ([description(layout=7)], "layout 7"),
    ],
)
def test_what_is_no_backup_is_refused(
    tmp_path: Path, entries: list[tuple[str, bytes, bytes]], message: str
) -> None:
    with pytest.raises(Failure, match=message):
        archive.describe(packed(tmp_path / "b.kedge", *entries))


def test_a_backup_of_an_older_layout_is_restored_for_the_next_start_to_convert(
    cluster: Path, tmp_path: Path
) -> None:
    record = state.read(cluster)
    assert record is not None
    state.write(cluster, msgspec.structs.replace(record, layout=1))
    file = tmp_path / "b.kedge"
    archive.write(cluster, file, NOW)
    assert archive.describe(file).layout == 1
    green = state.read(restored(file, cluster.parent, "green"))
    assert green is not None
    assert (green.layout, green.has_run) == (1, True)


def test_leftovers_of_killed_processes_are_removed_and_those_of_others_stay(
    cluster: Path, tmp_path: Path
) -> None:
    gone, alive = 1 << 30, 1
    for pid in (gone, alive):
        (cluster / f".backup-{pid}").mkdir()
        (cluster / f".backup-{pid}" / "store.db").touch()
        (tmp_path / f".b.kedge.{pid}").touch()
        (cluster.parent / f".green.restore-{pid}").mkdir()
    archive.write(cluster, tmp_path / "b.kedge", NOW)
    restored(tmp_path / "b.kedge", cluster.parent, "green")
    left = [*cluster.glob(".*"), *tmp_path.glob(".b*"), *cluster.parent.glob(".green*")]
    assert [each.name for each in left] == [".backup-1", ".b.kedge.1", ".green.restore-1"]


KILLED = """
import os, sys, tarfile
from datetime import UTC, datetime
from pathlib import Path
from kedge.cli.backup import archive

def die(*_, **__):
    os.kill(os.getpid(), 9)

places = {"archive": archive, "os": os, "tarfile": tarfile.TarFile}
place, name = sys.argv[3].split(".")
setattr(places[place], name, die)
archive.write(Path(sys.argv[1]), Path(sys.argv[2]), datetime(2026, 1, 1, tzinfo=UTC))
"""


@pytest.mark.parametrize("point", ["tarfile.add", "archive.copy_database", "os.fsync", "os.link"])
def test_a_killed_backup_leaves_no_file_under_its_name(
    cluster: Path, tmp_path: Path, point: str
) -> None:
    file = tmp_path / "b.kedge"
    run = [sys.executable, "-c", KILLED, str(cluster), str(file), point]
    assert subprocess.run(run, check=False).returncode == -9
    assert not file.exists()
    archive.write(cluster, file, NOW)
    assert archive.describe(file).made == NOW
    assert list(cluster.glob(".backup-*")) == []
    assert list(tmp_path.glob(".b*")) == []


def test_a_text_and_a_missing_file_are_no_backups(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name in ("text", "none"):
        with pytest.raises(Failure):
            archive.describe(tmp_path / name)


@pytest.mark.parametrize(
    "entry",
    [
        ("../outside", b"x", tarfile.REGTYPE),
        ("pki/../../outside", b"x", tarfile.REGTYPE),
        ("/tmp/outside", b"x", tarfile.REGTYPE),
        ("pki/ca.key", b"", tarfile.SYMTYPE),
        ("nodes/x", b"x", tarfile.REGTYPE),
        ("pki", b"", tarfile.DIRTYPE),
    ],
)
def test_foreign_members_are_refused_and_nothing_is_left(
    tmp_path: Path, entry: tuple[str, bytes, bytes]
) -> None:
    file = packed(tmp_path / "b.kedge", description(), entry)
    with pytest.raises(Failure, match="does not belong in a backup"):
        restored(file, tmp_path / "root", "blue")
    assert list((tmp_path / "root").iterdir()) == []


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    store = ("store.db", b"not a database" * 100, tarfile.REGTYPE)
    with pytest.raises(Failure, match="is damaged"):
        restored(packed(tmp_path / "b.kedge", description(), store), tmp_path / "root", "blue")
