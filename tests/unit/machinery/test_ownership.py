import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from kedge.machinery import ownership
from kedge.machinery.ownership import UntrustedPath
from kedge.testing import descriptors

STRANGER = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="to give files away takes root")


def test_a_directory_of_ours_is_trusted(tmp_path: Path) -> None:
    ownership.check_directory(tmp_path)
    ownership.check_directory(tmp_path / "not" / "there" / "yet")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_directory_that_others_may_write_to_is_not(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "place"
    place.mkdir()
    os.chown(place, -1, 54321) if os.geteuid() == 0 else None
    place.chmod(mode)
    with pytest.raises(UntrustedPath, match="may be written to by other users"):
        ownership.check_directory(place)


@pytest.mark.parametrize(("mode", "trusted"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_the_way_to_it_counts(tmp_path: Path, mode: int, trusted: bool) -> None:
    above = tmp_path / "above"
    (above / "place").mkdir(parents=True)
    above.chmod(mode)
    if trusted:
        ownership.check_directory(above / "place")
    else:
        with pytest.raises(UntrustedPath, match=r"above may be written to"):
            ownership.check_directory(above / "place")


@needs_root
def test_the_directory_of_somebody_else_is_not_trusted_nor_what_is_below(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "below").mkdir(parents=True)
    os.chown(place, STRANGER, STRANGER)
    for each in (place, place / "below", place / "new"):
        with pytest.raises(UntrustedPath, match="place belongs to the user with the id 12345"):
            ownership.check_directory(each)


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(UntrustedPath, match="open may be written to"):
        ownership.check_directory(tmp_path / "link")


def test_only_plain_files_of_ours_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    assert ownership.read(tmp_path / "file") == b"content"
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(UntrustedPath, match="is a link"):
        ownership.read(tmp_path / "link")
    # A blocking open would wait for ever.
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UntrustedPath, match="is not a regular file"):
        ownership.read(tmp_path / "fifo")


@needs_root
def test_a_file_of_somebody_else_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    os.chown(tmp_path / "file", STRANGER, STRANGER)
    with pytest.raises(UntrustedPath, match="belongs to"):
        ownership.read(tmp_path / "file")


def test_a_file_that_is_refused_is_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UntrustedPath):
        ownership.open_file(tmp_path / "fifo")
    assert descriptors.below(tmp_path / "fifo") == []


@needs_root
def test_files_and_directories_of_root_are_trusted_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "place").mkdir()
    os.chown(tmp_path / "place", STRANGER, STRANGER)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert ownership.read(tmp_path / "file") == b"content"
    ownership.check_directory(tmp_path / "place")


@needs_root
@pytest.mark.parametrize(
    ("primary", "group", "members", "trusted"),
    [
        (54321, "anna", [], True),
        (54321, "anna", ["anna"], True),
        (54321, "anna", ["anna", "berta"], False),
        (54321, "team", [], False),
        (100, "anna", [], False),
    ],
)
@pytest.mark.parametrize("owner", [STRANGER, 0])
def test_a_group_that_is_the_users_own_may_write(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    primary: int,
    group: str,
    members: list[str],
    trusted: bool,
    owner: int,
) -> None:
    above = tmp_path / "above"
    place = above / "place"
    place.mkdir(parents=True)
    os.chown(place, STRANGER, STRANGER)
    os.chown(above, owner, 54321)
    above.chmod(0o770)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    user = SimpleNamespace(pw_gid=primary, pw_name="anna")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    found = SimpleNamespace(gr_name=group, gr_mem=members)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: found)
    if trusted and owner == STRANGER:
        ownership.check_directory(place)
        return
    with pytest.raises(UntrustedPath, match="above may be written to by other users"):
        ownership.check_directory(place)


@pytest.mark.parametrize(
    ("uid_map", "more"), [("0 0 4294967295\n", []), ("0 1000 1\n1 100000 65536\n", [65534])]
)
def test_in_a_user_namespace_the_owner_that_has_no_id_is_trusted(
    monkeypatch: pytest.MonkeyPatch, uid_map: str, more: list[int]
) -> None:
    files = {"/proc/self/uid_map": uid_map, "/proc/sys/kernel/overflowuid": "65534\n"}
    monkeypatch.setattr(Path, "read_text", lambda path: files[str(path)])
    assert [*ownership._trusted_owners()] == [0, os.geteuid(), *more]


def test_a_user_is_named_by_name_or_by_number() -> None:
    assert ownership.user_name(0) == '"root"'
    assert ownership.user_name(STRANGER) == "the user with the id 12345"
