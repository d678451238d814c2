import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kedge.supervisor.loop import EventLoop
from kedge.supervisor.records import Records
from kedge.supervisor.sandbox.sandbox import Sandbox


def sandbox(tmp_path: Path, loop: EventLoop, **host: Any) -> Sandbox:
    records = Records(str(tmp_path), "sandboxes")
    spec = {
        "files": {"hostname": "web\n"},
        "host_network": True,
        "host_ipc": True,
        "shared_pid": False,
        "first_id": 0,
        "cgroup_parent": "",
    }
    record = {"id": "one", "created_at": 1, "shared": spec, "ready": False, "ips": []}
    record |= {"above": [], "pause": ""}
    records.make("one")
    machine: Any = SimpleNamespace(
        loop=loop, isolated=True, cgroups=None, created_cgroups=set(), **host
    )
    return Sandbox(record, machine, records)


def test_files_are_made_and_a_pod_with_the_machines_namespaces_is_open_at_once(
    event_loop: EventLoop, tmp_path: Path
) -> None:
    one = sandbox(tmp_path, event_loop)
    opened: list[tuple[str, list[int]]] = []
    one.open(lambda *result: opened.append(result))
    assert opened == [("", [])]
    assert (tmp_path / "sandboxes/one/hostname").read_text() == "web\n"


def test_a_settled_sandbox_is_ready_until_it_is_closed(
    event_loop: EventLoop, tmp_path: Path
) -> None:
    one = sandbox(tmp_path, event_loop)
    one.settle(["10.0.0.1"])
    assert Records(str(tmp_path), "sandboxes").load()[0]["ips"] == ["10.0.0.1"]
    closed: list[bool] = []
    one.close(lambda: closed.append(True))
    assert closed == [True]
    assert not Records(str(tmp_path), "sandboxes").load()[0]["ready"]


def test_cgroups_above_go_with_the_last_pod_in_them(event_loop: EventLoop, tmp_path: Path) -> None:
    one = sandbox(tmp_path, event_loop)
    used, empty = tmp_path / "used", tmp_path / "empty"
    (used / "other").mkdir(parents=True)
    empty.mkdir()
    one.record["above"] = [str(used), str(empty), str(tmp_path / "gone")]
    one.close(lambda: None)
    assert used.exists()
    assert not empty.exists()
    assert one._host.created_cgroups == {str(used)}


def test_the_end_of_a_child_without_a_message_is_an_error(
    event_loop: EventLoop, tmp_path: Path
) -> None:
    one = sandbox(tmp_path, event_loop)
    results: list[tuple[str, list[int]]] = []

    def done(error: str, descriptors: list[int]) -> None:
        results.append((error, descriptors))
        event_loop.stop()

    one._in_child(lambda status: os._exit(1), done)
    event_loop.run()
    event_loop.when_alone(event_loop.stop, 60)
    event_loop.run()
    assert results == [("a child of the supervisor ended before its time", [])]
