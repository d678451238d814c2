"""The rows of a frame are numbered as they are added."""

from pathlib import Path

from kedge.metrics.frame import WIDTH
from kedge.metrics.track import Track
from kedge.metrics.window_file import TrackKey, WindowFile
from kedge.node.stats.rows import Rows


def test_each_track_gets_the_next_row(tmp_path: Path) -> None:
    windows = WindowFile(tmp_path / "usage", "boot")
    rows = Rows()
    for number, name in enumerate(("a", "b")):
        windows.claim(TrackKey(name, ""))
        slot = windows.get(TrackKey(name, ""))
        assert slot is not None
        assert rows.add(Track(slot, 1, same_boot=True)) == number
    assert len(rows.values) == 2 * WIDTH
    assert len(rows.details) == 2
