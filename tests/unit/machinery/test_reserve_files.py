import errno
from pathlib import Path

import pytest

from kedge.machinery import reserve_files


def pieces(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("reserve.*"))


def test_space_is_taken_once_and_given_back_piece_by_piece(tmp_path: Path) -> None:
    assert reserve_files.ensure(tmp_path)
    assert reserve_files.ensure(tmp_path)
    taken = [path.stat().st_blocks * 512 for path in sorted(tmp_path.glob("reserve.*"))]
    assert sum(taken) >= sum(reserve_files.SIZES)
    assert reserve_files.release(tmp_path)
    assert pieces(tmp_path)[0] == "reserve.1"
    assert reserve_files.ensure(tmp_path)
    assert len(pieces(tmp_path)) == len(reserve_files.SIZES)


def test_no_space_is_taken_where_there_is_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve_files, "free_bytes", lambda directory: sum(reserve_files.SIZES))
    assert not reserve_files.ensure(tmp_path)
    assert not pieces(tmp_path)


def test_on_a_full_disk_room_is_made_until_it_is_enough(tmp_path: Path) -> None:
    reserve_files.ensure(tmp_path)

    def deed() -> str:
        if len(pieces(tmp_path)) > len(reserve_files.SIZES) - 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return "done"

    assert reserve_files.with_room(tmp_path, deed) == "done"
    assert len(pieces(tmp_path)) == len(reserve_files.SIZES) - 3


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_what_no_room_helps_is_raised(tmp_path: Path, number: int) -> None:
    def deed() -> None:
        raise OSError(number, "no")

    with pytest.raises(OSError, match="no"):
        reserve_files.with_room(tmp_path, deed)
