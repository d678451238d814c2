"""The logs of a cluster's own processes."""

from pathlib import Path

from kedge.cli.cluster.logs import keep_logs


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
