import os
from pathlib import Path

import pytest

from kedge.machinery import ownership
from kedge.machinery.ownership import UntrustedPath

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
