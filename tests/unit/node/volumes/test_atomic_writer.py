"""Directories that change all at once: what readers see, at any moment and after any crash."""

import os
import stat
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.node.volumes import atomic_writer
from kedge.node.volumes.atomic_writer import VolumeFile
from kedge.supervisor.files import mapped
from kedge.supervisor.files.mapped import FileOwner
from kedge.supervisor.files.removal import remove

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def files(**contents: str) -> dict[str, VolumeFile]:
    return {name: VolumeFile(text.encode(), 0o644) for name, text in contents.items()}


def shown(place: Path) -> dict[str, bytes]:
    """What a reader finds who knows nothing of how it is made, dead links left out."""
    tops = [each for each in place.iterdir() if not each.name.startswith("..")]
    paths = [path for top in tops for path in (top, *top.rglob("*"))]
    return {str(path.relative_to(place)): path.read_bytes() for path in paths if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_names_are_links_into_a_directory_with_a_time_in_its_name(tmp_path: Path) -> None:
    assert atomic_writer.write(
        tmp_path, {"a": VolumeFile(b"1", 0o644), "d/b": VolumeFile(b"2", 0o644)}, NOW
    )
    assert os.readlink(tmp_path / "a") == "..data/a"
    assert os.readlink(tmp_path / "d") == "..data/d"
    hidden = os.readlink(tmp_path / "..data")
    assert hidden.startswith("..2030_01_02_03_04_05.")
    assert mode(tmp_path / hidden) == 0o755
    assert (tmp_path / "d" / "b").read_bytes() == b"2"


def test_same_content_writes_nothing(tmp_path: Path) -> None:
    atomic_writer.write(tmp_path, files(a="1"), NOW)
    before = os.readlink(tmp_path / "..data")
    assert not atomic_writer.write(tmp_path, files(a="1"), NOW)
    assert os.readlink(tmp_path / "..data") == before


def test_links_that_are_missing_are_made_again_though_nothing_changed(tmp_path: Path) -> None:
    atomic_writer.write(tmp_path, files(a="1"), NOW)
    (tmp_path / "a").unlink()
    atomic_writer.write(tmp_path, files(a="1"), NOW)
    assert shown(tmp_path) == {"a": b"1"}


def test_names_that_are_no_more_go(tmp_path: Path) -> None:
    atomic_writer.write(tmp_path, files(a="1", b="2"), NOW)
    assert atomic_writer.write(tmp_path, files(b="2"), NOW)
    assert sorted(each.name for each in tmp_path.iterdir() if each.name[0] != ".") == ["b"]


def test_a_file_that_is_open_keeps_its_content_through_an_update(tmp_path: Path) -> None:
    atomic_writer.write(tmp_path, files(a="old"), NOW)
    with open(tmp_path / "a") as opened:
        atomic_writer.write(tmp_path, files(a="new"), NOW)
        assert opened.read() == "old"
    assert (tmp_path / "a").read_text() == "new"


def test_no_files_are_a_directory_without_names(tmp_path: Path) -> None:
    atomic_writer.write(tmp_path / "v", {}, NOW)
    assert shown(tmp_path / "v") == {}
    assert (tmp_path / "v" / "..data").is_dir()


def test_rights_are_what_was_asked_for_whatever_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        wanted = {
            "open": VolumeFile(b"", 0o666),
            "shut": VolumeFile(b"", 0o400),
            "x/run": VolumeFile(b"", 0o755),
        }
        atomic_writer.write(tmp_path / "v", wanted, NOW)
    finally:
        os.umask(previous)
    place = tmp_path / "v"
    assert [mode(place / each) for each in wanted] == [0o666, 0o400, 0o755]
    assert (mode(place), mode(place / "x")) == (0o777, 0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to a group")
def test_a_group_may_read_everything(tmp_path: Path) -> None:
    place = tmp_path / "v"
    wanted = {
        "a": VolumeFile(b"", 0o400),
        "d/b": VolumeFile(b"", 0o644),
        "none": VolumeFile(b"", 0),
    }
    atomic_writer.write(place, wanted, NOW, group=1234)
    assert [mode(place / each) for each in wanted] == [0o440, 0o644, 0o440]
    assert mode(place) == 0o2777
    assert mode(place / "d") == 0o2755
    for path in (place, place / "a", place / "d", place / "d" / "b"):
        assert path.stat().st_gid == 1234


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_owner_keeps_a_file_to_himself(tmp_path: Path) -> None:
    atomic_writer.write(tmp_path, {"token": VolumeFile(b"t", 0o600, owner=4321)}, NOW)
    found = (tmp_path / "token").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (4321, 0o600)


@pytest.mark.parametrize(
    ("path", "cleaned"), [("./a", "a"), ("a/", "a"), ("a//b", "a/b"), ("a/..b", "a/..b")]
)
def test_paths_are_cleaned(path: str, cleaned: str, tmp_path: Path) -> None:
    atomic_writer.write(tmp_path, {path: VolumeFile(b"x", 0o644)}, NOW)
    assert shown(tmp_path) == {cleaned: b"x"}


@pytest.mark.parametrize(
    "path", ["", "/a", "../a", "a/../b", "..", "..a", "..data", "a" * 256, "a/" * 2050]
)
def test_paths_that_lead_elsewhere_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="invalid path"):
        atomic_writer.write(tmp_path / "v", {path: VolumeFile(b"x", 0o644)}, NOW)
    assert not (tmp_path / "v").exists()


def test_a_write_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    atomic_writer.write(tmp_path, files(a="1"), NOW)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="a"):
        atomic_writer.write(
            tmp_path, {"a": VolumeFile(b"1", 0o644), "a/b": VolumeFile(b"2", 0o644)}, NOW
        )
    assert sorted(os.listdir(tmp_path)) == before
    assert shown(tmp_path) == {"a": b"1"}


def test_a_directory_in_the_way_of_a_name_is_left_alone(tmp_path: Path) -> None:
    atomic_writer.write(tmp_path, files(a="1"), NOW)
    (tmp_path / "b").mkdir()
    atomic_writer.write(tmp_path, files(a="2", b="3"), NOW)
    assert shown(tmp_path) == {"a": b"2"}
    assert (tmp_path / "b").is_dir()


NAMES = st.sampled_from(["a", "b", "c", "x/1", "x/2", "y/z/1"])
PAYLOADS = st.dictionaries(NAMES, st.sampled_from([b"", b"1", b"22"]), max_size=4)


def made(payload: Mapping[str, bytes]) -> dict[str, VolumeFile]:
    return {path: VolumeFile(content, 0o644) for path, content in payload.items()}


@settings(max_examples=50, deadline=None)
@given(st.lists(PAYLOADS, min_size=1, max_size=5))
def test_after_any_payloads_the_last_one_is_all_there_is(payloads: list[dict[str, bytes]]) -> None:
    with TemporaryDirectory() as directory:
        place = Path(directory) / "v"
        for payload in payloads:
            atomic_writer.write(place, made(payload), NOW)
            assert shown(place) == payload
            assert len([each for each in place.iterdir() if each.name.startswith("..2")]) == 1


def crashed(place: Path, payload: Mapping[str, bytes], step: int) -> bool:
    """Write in a process that is gone just before its n-th deed; whether it got so far."""
    child = os.fork()
    if child == 0:
        left = step
        deeds = ("open", "os.mkdir", "os.chmod", "os.chown", "os.symlink", "os.rename", "os.remove")

        def hook(event: str, _: object) -> None:
            nonlocal left
            if event in deeds or event in ("os.rmdir", "os.scandir", "shutil.rmtree"):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(hook)
        try:
            atomic_writer.write(place, made(payload), NOW)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@settings(max_examples=4, deadline=None)
@given(PAYLOADS, PAYLOADS)
def test_a_crash_at_any_step_leaves_the_old_or_the_new(
    old: dict[str, bytes], new: dict[str, bytes]
) -> None:
    step, there = 0, True
    while there:
        with TemporaryDirectory() as directory:
            place = Path(directory) / "v"
            atomic_writer.write(place, made(old), NOW)
            there = crashed(place, new, step)
            found = shown(place)
            # Names that one of them has not may be missing yet, or not be gone, but none is of
            # another time than the others.
            assert found.items() <= old.items() or found.items() <= new.items()
            assert found.keys() >= old.keys() & new.keys()
            atomic_writer.write(place, made(new), NOW)
            assert shown(place) == new
            assert sum(each.name.startswith("..") for each in place.iterdir()) == 2
        step += 1


def test_what_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    volume = atomic_writer.AtomicWriter(tmp_path)
    assert volume.write({**files(a="1", b="2"), "d/c": VolumeFile(b"3", 0o644)}, NOW)
    before = {name: (tmp_path / name).stat().st_ino for name in ("a", "d/c")}
    assert volume.write({**files(a="1", b="other", e="4"), "d/c": VolumeFile(b"3", 0o644)}, NOW)
    assert {name: (tmp_path / name).stat().st_ino for name in ("a", "d/c")} == before
    assert shown(tmp_path) == {"a": b"1", "b": b"other", "d/c": b"3", "e": b"4"}
    assert not volume.write({**files(a="1", b="other", e="4"), "d/c": VolumeFile(b"3", 0o644)}, NOW)
    assert volume.write({"a": VolumeFile(b"1", 0o600)}, NOW)
    assert mode(tmp_path / "a") == 0o600
    assert shown(tmp_path) == {"a": b"1"}
    assert len(os.listdir(tmp_path)) == 3


def test_a_failed_write_does_not_make_the_next_one_believe_anything(tmp_path: Path) -> None:
    volume = atomic_writer.AtomicWriter(tmp_path)
    volume.write(files(a="1"), NOW)
    with pytest.raises(OSError, match="a"):
        volume.write({"a": VolumeFile(b"1", 0o644), "a/b": VolumeFile(b"2", 0o644)}, NOW)
    assert volume.write(files(a="2"), NOW)
    assert shown(tmp_path) == {"a": b"2"}


def test_a_path_may_be_as_deep_as_the_api_allows(tmp_path: Path) -> None:
    deep = "d/" * 1500 + "file"
    atomic_writer.write(tmp_path, {deep: VolumeFile(b"x", 0o644)}, NOW)
    assert (tmp_path / deep).read_bytes() == b"x"
    remove(tmp_path)


@pytest.mark.parametrize("led", ["..", "../outside", "/etc", "outside"])
def test_data_that_leads_elsewhere_is_not_ours(tmp_path: Path, led: str) -> None:
    place = tmp_path / "v"
    atomic_writer.write(place, files(a="1"), NOW)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_text("1")
    (place / "..data").unlink()
    (place / "..data").symlink_to(led)
    assert atomic_writer.write(place, files(a="1"), NOW)
    assert (tmp_path / "outside" / "a").exists()
    assert shown(place) == {"a": b"1"}


def test_subordinate_ids_own_files_where_the_agent_is_not_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[FileOwner] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(mapped, "own", given.extend)
    wanted = {"d/a": VolumeFile(b"1", 0o600, owner=7), "b": VolumeFile(b"2", 0o644)}
    atomic_writer.write(tmp_path, files(plain="x"), NOW)
    assert given == []
    atomic_writer.write(tmp_path, wanted, NOW)
    fresh = tmp_path / os.readlink(tmp_path / "..data")
    assert given == [FileOwner(str(fresh / "d/a"), 7, -1, 0o600)]
    given.clear()
    other = tmp_path / "other"
    atomic_writer.write(other, wanted, NOW, group=99)
    fresh = other / os.readlink(other / "..data")
    assert given == [
        FileOwner(str(other), -1, 99, 0o2777),
        FileOwner(str(fresh), -1, 99, 0o2755),
        FileOwner(str(fresh / "d"), -1, 99, 0o2755),
        FileOwner(str(fresh / "d/a"), 7, 99, 0o640),
        FileOwner(str(fresh / "b"), -1, 99, 0o644),
    ]
