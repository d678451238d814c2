import os
from pathlib import Path

import pytest

from kedge.cli.cluster import process
from kedge.cluster.warm_parent import leftovers

LONG_AGO = 1_000_000_000


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def cluster(place: Path, name: str, *, is_old: bool) -> Path:
    made = place / name
    (made / "nodes").mkdir(parents=True)
    (made / "server.log").touch()
    if is_old:
        os.utime(made, (LONG_AGO, LONG_AGO))
    return made


def test_only_old_clusters_without_a_keeper_are_removed(place: Path) -> None:
    dead = cluster(place, "kedge-test-dead", is_old=True)
    young = cluster(place, "kedge-test-young", is_old=False)
    other = cluster(place, "something", is_old=True)
    kept = cluster(place, "kedge-test-kept", is_old=False)
    held = process.claim(kept, leftovers.PART)
    os.utime(kept, (LONG_AGO, LONG_AGO))
    try:
        leftovers.remove()
    finally:
        os.close(held)
    assert [each.exists() for each in (dead, young, other, kept)] == [False, True, True, True]


def test_a_directory_of_the_user_is_kept(place: Path) -> None:
    mine = cluster(place, "mine", is_old=True)
    assert leftovers.end(mine, is_kept=True) == ""
    assert (mine / "server.log").exists()
