import os
from pathlib import Path

from kedge.supervisor.files.spread import spread


def test_a_directory_that_was_spread_is_one_like_any_other(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir(mode=0o700)
    spread(str(top))
    spread(str(top))
    (top / "a" / "b").mkdir(parents=True)
    assert top.stat().st_mode & 0o777 == 0o700
    assert os.listdir(top) == ["a"]


def test_where_there_is_no_such_flag_nothing_happens(tmp_path: Path) -> None:
    spread("/proc")
    spread(str(tmp_path / "nothing here"))
    assert not any(tmp_path.iterdir())
