"""A real supervisor, from its start to its end."""

from pathlib import Path

from kedge.node.runtime import spawn
from kedge.node.runtime.spawn import SupervisorStart
from kedge.supervisor import wire


def shut_down(directory: Path) -> None:
    connected = spawn.connected(directory)
    assert connected is not None
    with connected:
        wire.post(connected, *wire.packet({"id": 1, "do": "shutdown"}))
        assert wire.take(connected)[0] == {"id": 1, "result": {}}


def test_a_supervisor_is_started_unless_there_is_one(tmp_path: Path) -> None:
    directory = tmp_path / "runtime"
    begun = spawn.begin(directory)
    assert begun is not None
    assert begun.failure() == ""
    assert spawn.begin(directory) is None
    assert SupervisorStart(directory).failure() == f"another supervisor has {directory}"
    shut_down(directory)


def test_what_keeps_a_supervisor_from_starting_is_told(tmp_path: Path) -> None:
    (tmp_path / "supervisor.lock").mkdir()
    begun = spawn.begin(tmp_path)
    assert begun is not None
    assert "Is a directory" in begun.failure()
    assert spawn.connected(tmp_path) is None
