from pathlib import Path

from kedge.node.pod.files import _REMOVALS, PodFiles, WritablePaths
from kedge.testing.pods import new_pod

POD = new_pod(metadata={"uid": "u-1"})


def test_a_pod_has_its_own_directories_and_nobody_else_reads_them(tmp_path: Path) -> None:
    files = PodFiles(tmp_path / "pods", tmp_path / "logs")
    assert files.uids() == set()
    files.make(POD)
    files.make(POD)
    assert files.logs(POD) == tmp_path / "logs/default_pod_u-1"
    assert files.directory("u-1").stat().st_mode & 0o777 == 0o700
    assert files.uids() == {"u-1"}


def test_last_words_can_be_written_by_anybody(tmp_path: Path) -> None:
    files = PodFiles(tmp_path / "pods", tmp_path / "logs")
    files.make(POD)
    path = files.make_termination_log("u-1", "c", 3)
    assert path.stat().st_mode & 0o777 == 0o666
    files.drop_termination_log("u-1", "c", 3)
    assert not path.exists()


def test_everything_of_a_pod_can_be_removed(tmp_path: Path) -> None:
    files = PodFiles(tmp_path / "pods", tmp_path / "logs")
    files.make(POD)
    files.write_hosts("u-1", "x")
    files.remove("u-1")
    files.remove("u-1")
    assert files.uids() == set()


def test_what_an_earlier_agent_has_left_is_removed_with_the_first_pod(tmp_path: Path) -> None:
    left = tmp_path / "pods" / "..gone-other"
    left.mkdir(parents=True)
    files = PodFiles(tmp_path / "pods", tmp_path / "logs")
    files.make(POD)
    files.remove("u-1")
    _REMOVALS.submit(int).result()
    assert list((tmp_path / "pods").iterdir()) == []


def test_all_writable_layers_of_a_container_count(tmp_path: Path) -> None:
    files = WritablePaths(tmp_path / "pods", tmp_path / "runtime")
    home = tmp_path / "runtime" / "containers" / "c"
    # An ordinary user's image `host` has one for each directory of the machine, below `parts`.
    assert files.layers("c") == [home / "upper", home / "parts", home / "shown"]
