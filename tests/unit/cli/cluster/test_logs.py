"""The logs of a cluster's own processes."""

import os
from pathlib import Path

import pytest

from kedge.cli.cluster.logs import component, component_log, keep_logs, last_lines, show_log
from kedge.cli.failure import Failure


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("server", ("server", "")),
        ("node", ("node", "")),
        ("node/node-2", ("node", "node-2")),
        ("supervisor/n", ("supervisor", "n")),
        ("restarter", ("restarter", "")),
        ("server-2", ("server-2", "")),
        ("server-02", None),
        ("server/x", None),
        ("node/", None),
        ("web", None),
        ("pod/server", None),
        ("", None),
    ],
)
def test_some_words_are_processes_of_the_cluster(
    word: str, expected: tuple[str, str] | None
) -> None:
    assert component(word) == expected


def test_the_log_of_each_process_is_found(tmp_path: Path) -> None:
    (tmp_path / "nodes" / "a" / "runtime").mkdir(parents=True)
    for name in ("server.log", "nodes/a/node.log", "nodes/a/runtime/supervisor.log"):
        (tmp_path / name).write_text("x")
    assert component_log(tmp_path, "server", "") == tmp_path / "server.log"
    assert component_log(tmp_path, "node", "") == tmp_path / "nodes/a/node.log"
    assert component_log(tmp_path, "supervisor", "a").name == "supervisor.log"
    with pytest.raises(Failure, match=r"there is no .*/restarter.log"):
        component_log(tmp_path, "restarter", "")
    with pytest.raises(Failure, match=r'there is no node "b" in .*: the nodes are a'):
        component_log(tmp_path, "node", "b")
    (tmp_path / "nodes" / "b").mkdir()
    with pytest.raises(Failure, match="several nodes: name one"):
        component_log(tmp_path, "node", "")


def test_a_cluster_without_nodes_has_no_log_of_one(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="has no nodes: 'kedge up --nodes 1' starts one"):
        component_log(tmp_path, "supervisor", "")


def test_a_log_is_shown_whole_or_its_last_lines(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"a\nb\nc")
    show_log(log, tail=None, follow=False)
    assert capsysbinary.readouterr().out == b"a\nb\nc"
    show_log(log, tail=2, follow=False)
    assert capsysbinary.readouterr().out == b"b\nc"
    show_log(log, tail=0, follow=False)
    assert capsysbinary.readouterr().out == b""


def test_a_log_that_was_cut_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"a\nb\n")
    with open(log, "rb") as file:
        assert last_lines(file.fileno(), 5) == [b"a\n", b"b\n"]
        os.truncate(log, 0)
        log.write_bytes(b"c\n")
        os.lseek(file.fileno(), 4, os.SEEK_SET)
        assert last_lines(file.fileno(), 5) == [b"c\n"]


def test_logs_of_server_and_nodes_are_kept(tmp_path: Path) -> None:
    state = tmp_path / "state"
    runtime = state / "nodes" / "node-1" / "runtime"
    runtime.mkdir(parents=True)
    for file in (state / "server.log", runtime.parent / "node.log", runtime / "supervisor.log"):
        file.write_text(file.name)
    (state / "token").touch()
    assert keep_logs(state, tmp_path / "logs")
    assert sorted(each.name for each in (tmp_path / "logs").iterdir()) == [
        "nodes-node-1-node.log",
        "nodes-node-1-runtime-supervisor.log",
        "server.log",
    ]
