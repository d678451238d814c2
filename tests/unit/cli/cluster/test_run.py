from pathlib import Path

import pytest

from kedge.cli.cluster.run import execute, keep_logs


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", 'test "$KUBECONFIG" = /here'], 0),
        (["sh", "-c", "kill -9 $$"], 137),
        (["/nonexistent/command"], 127),
        (["/"], 126),
    ],
)
def test_the_exit_code_is_that_of_a_shell(line: list[str], code: int) -> None:
    assert execute(line, {"PATH": "/usr/bin:/bin", "KUBECONFIG": "/here"}) == code


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
