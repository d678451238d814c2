import errno
from pathlib import Path

import pytest

from kedge.machinery import ballast


def pieces(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("reserve.*"))


def test_space_is_taken_once_and_given_back_piece_by_piece(tmp_path: Path) -> None:
    assert ballast.ensure(tmp_path)
    assert ballast.ensure(tmp_path)
    taken = [path.stat().st_blocks * 512 for path in sorted(tmp_path.glob("reserve.*"))]
    assert sum(taken) >= sum(ballast.SIZES)
    assert ballast.release(tmp_path)
    assert pieces(tmp_path)[0] == "reserve.1"
    assert ballast.ensure(tmp_path)
    assert len(pieces(tmp_path)) == len(ballast.SIZES)


def test_no_space_is_taken_where_there_is_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ballast, "free_bytes", lambda directory: sum(ballast.SIZES))
    assert not ballast.ensure(tmp_path)
    assert not pieces(tmp_path)


def test_on_a_full_disk_room_is_made_until_it_is_enough(tmp_path: Path) -> None:
    ballast.ensure(tmp_path)

    def deed() -> str:
        if len(pieces(tmp_path)) > len(ballast.SIZES) - 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return "done"

    assert ballast.with_room(tmp_path, deed) == "done"
    assert len(pieces(tmp_path)) == len(ballast.SIZES) - 3


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_what_no_room_helps_is_raised(tmp_path: Path, number: int) -> None:
    def deed() -> None:
        raise OSError(number, "no")

    with pytest.raises(OSError, match="no"):
        ballast.with_room(tmp_path, deed)
