"""Starting a cluster, with a small program in the place of its server."""

import fcntl
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kedge.apiserver.config import ServerConfig
from kedge.cli.cluster import process, state
from kedge.cli.cluster.up import preparation, programs
from kedge.cli.cluster.up.command import UpConfig, UpResult, report
from kedge.cli.cluster.up.start import background
from kedge.cli.failure import Failure, StartFailure
from kedge.client import kubeconfig
from kedge.client.kubeconfig import ClusterAccess
from kedge.node.config import NodeConfig

STAND_IN = """
import os, signal, sys
from pathlib import Path
from kedge.cli.cluster import process
from kedge.cli.cluster import state
from kedge.cli.cluster.announcement import Announcement
from kedge.cli.commands import COMMANDS
from kedge.cli.main import parser
from kedge.cli.cluster.server import tell
from kedge.cli.config.server import server_config
from kedge.cli.config.settings import Settings
flags = parser(each for each in COMMANDS if each.name == sys.argv[1]).parse_args(sys.argv[1:])
wanted = server_config(Settings(flags, {}))
process.claim(wanted.state)
(wanted.state / "pki").mkdir(exist_ok=True)
for name in ("pki/ca.crt", "pki/ca.key", "token", "store.db"):
    (wanted.state / name).write_text("pem")
MANNER
tell(flags.ready_fd)(Announcement(f"https://{wanted.host}:{wanted.port or 7001}", b"pem", "secret"))
signal.pause()
"""


STAND_IN_FOR_A_NODE = """
import os, signal, sys
from pathlib import Path
from kedge.cli.cluster import process
from kedge.cli.commands import COMMANDS
from kedge.cli.main import parser
from kedge.cli.cluster.node import tell
flags = parser(each for each in COMMANDS if each.name == sys.argv[1]).parse_args(sys.argv[1:])
# Only who hangs up can end this one.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
home = flags.state / "nodes" / flags.node_name
(home / "waits").touch()
(home / "heard").write_bytes(open(flags.join_fd, "rb").readline())
tell(flags.ready_fd)()
"""


@pytest.fixture
def config(tmp_path: Path) -> UpConfig:
    return UpConfig(
        server=ServerConfig(state=tmp_path / "root" / "blue", name="blue", port=0),
        nodes=(),
        port_given=False,
        root=tmp_path / "root",
        kubeconfig=tmp_path / "config",
        wait=20.0,
    )


@pytest.fixture
def manner(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How the stand-in behaves before it says that it is ready."""
    lines: list[str] = []

    def program() -> list[str]:
        server = STAND_IN.replace("MANNER", "\n".join(lines))
        choice = f"exec({STAND_IN_FOR_A_NODE!r} if sys.argv[1] == 'node' else {server!r})"
        return [sys.executable, "-c", f"import sys; {choice}"]

    monkeypatch.setattr(programs, "kedge_command", program)
    # The stand-in writes files of its own in place of keys.
    monkeypatch.setattr("kedge.cli.cluster.up.start.help_along", lambda server, cluster: None)
    return lines


@pytest.fixture(autouse=True)
def logs_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed starts keep logs among temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture(autouse=True)
def nothing_left_running(config: UpConfig) -> Iterator[None]:
    yield
    for part in ("restarter", "server"):
        kill(config, part)


def kill(config: UpConfig, part: str) -> None:
    """Kill one process of the cluster, and see it gone."""
    if found := process.running(config.server.state, part):
        os.kill(found.pid, signal.SIGKILL)
        while process.running(config.server.state, part) == found:
            pass


def start(config: UpConfig) -> tuple[UpResult, list[str]]:
    said: list[str] = []
    return background(config, said.append), said


def test_a_cluster_that_is_up_is_in_the_kubeconfig(config: UpConfig, manner: list[str]) -> None:
    done, said = start(config)
    assert done.url == "https://127.0.0.1:7001"
    assert said[0].startswith('Starting cluster "blue" in ')
    assert "ready at https://127.0.0.1:7001" in said[1]
    assert yaml.safe_load(config.kubeconfig.read_text())["current-context"] == "kedge-blue"
    assert "Stop it with:  kedge down --name blue" in report(config, done)


def test_a_new_cluster_that_cannot_be_started_is_removed(
    config: UpConfig, manner: list[str]
) -> None:
    manner.append("print('the reason', file=sys.stderr); sys.exit(9)")
    with pytest.raises(StartFailure, match="ended with exit code 9 before it was ready") as failed:
        start(config)
    assert failed.value.code == 125
    assert not config.server.state.exists()
    assert list(config.root.iterdir()) == []
    [log] = re.findall(r"The end of (\S+):", str(failed.value))
    assert "the reason" in Path(log).read_text()


def test_a_cluster_that_has_run_is_kept_when_it_cannot_be_started(
    config: UpConfig, manner: list[str]
) -> None:
    start(config)
    for part in ("restarter", "server"):
        kill(config, part)
    manner.append("sys.exit(9)")
    with pytest.raises(StartFailure, match=f"The end of {config.server.state}/server.log"):
        start(config)
    assert (config.server.state / "cluster.json").exists()


def test_a_second_up_changes_nothing_and_says_so(config: UpConfig, manner: list[str]) -> None:
    start(config)
    before = process.running(config.server.state), config.kubeconfig.read_bytes()
    done, said = start(config)
    assert done.was_running
    assert said == []
    assert report(config, done).startswith('Cluster "blue" is already running')
    assert (process.running(config.server.state), config.kubeconfig.read_bytes()) == before


def test_nodes_start_with_the_server_and_are_told_where_it_is(
    config: UpConfig, manner: list[str]
) -> None:
    node = node_of(config)
    _, said = start(config._replace(nodes=(node,)))
    assert (node.state / "heard").read_text() == "https://127.0.0.1:7001\n"
    assert said[-1].startswith("Node ready (")


def test_a_node_learns_that_its_server_has_failed(
    config: UpConfig, manner: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of(config)
    # The files of a new cluster would be deleted.
    monkeypatch.setattr("kedge.cli.cluster.up.start.discard", lambda config, message: message)
    # Not before there is a node to learn of it.
    manner.append(f"while not Path({str(node.state / 'waits')!r}).exists(): pass")
    manner.append('sys.exit("error: the store is from another age")')
    with pytest.raises(Failure, match=r"^the store is from another age$"):
        start(config._replace(nodes=(node,)))
    assert (node.state / "heard").read_text() == ""


def node_of(config: UpConfig) -> NodeConfig:
    cluster = config.server
    return NodeConfig(
        name="node-1",
        cluster=cluster.name,
        state=cluster.state / "nodes" / "node-1",
        images=cluster.state / "images",
        hidden=(cluster.state,),
    )


def test_the_servers_own_explanation_is_passed_on(config: UpConfig, manner: list[str]) -> None:
    manner.append('sys.exit("error: the store is from another age")')
    with pytest.raises(Failure, match=r"^the store is from another age$"):
        start(config)
    assert not config.kubeconfig.exists()


def test_the_last_words_of_a_server_that_crashed_are_shown(
    config: UpConfig, manner: list[str]
) -> None:
    manner.append('raise ZeroDivisionError("nobody expected this")')
    with pytest.raises(Failure, match=r"(?s)exit code 1 .*nobody expected this"):
        start(config)


def test_a_server_that_was_killed_while_starting_is_reported(
    config: UpConfig, manner: list[str]
) -> None:
    manner.append("os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(Failure, match=r"by signal 9"):
        start(config)


def test_a_server_that_is_never_ready_is_given_up_and_ended(
    config: UpConfig, manner: list[str]
) -> None:
    manner.append("signal.pause()")
    with pytest.raises(Failure, match=r"not ready within 0\.01 s"):
        start(config._replace(wait=0.01))
    assert process.running(config.server.state) is None


def test_a_malformed_kubeconfig_stops_the_start_before_anything_happens(
    config: UpConfig, manner: list[str]
) -> None:
    config.kubeconfig.write_text("- not\n- a kubeconfig\n")
    with pytest.raises(Failure, match="is not a kubeconfig file"):
        start(config)
    assert not config.server.state.exists()


def remember(config: UpConfig, port: int) -> None:
    """As if a server had been here, on this port."""
    directory = config.server.state
    state.write(directory, state.ClusterRecord(name="blue", port=port))
    (directory / "pki").mkdir()
    for name in ("pki/ca.crt", "pki/ca.key", "token"):
        (directory / name).write_text("pem")


def test_a_restart_keeps_the_port(config: UpConfig, manner: list[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = preparation.prepare(config, print)
    remember(config, port)
    done, _ = start(config)
    assert cluster.port == 0
    assert done.url == f"https://127.0.0.1:{port}"


def test_a_port_that_others_took_meanwhile_is_given_up(config: UpConfig, manner: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        preparation.prepare(config, print)
        remember(config, port)
        done, said = start(config)
    assert done.url == "https://127.0.0.1:7001"
    assert said[0] == f"Port {port}, which the cluster had before, is in use: taking another one."


def test_after_a_crash_the_context_from_before_it_is_still_remembered(
    config: UpConfig, manner: list[str]
) -> None:
    config.kubeconfig.write_text("contexts:\n- {context: {}, name: prod}\ncurrent-context: prod\n")
    for _ in range(2):
        start(config)
        for part in ("restarter", "server"):
            kill(config, part)
    remembered = state.read(config.server.state)
    assert remembered is not None
    assert remembered.previous_context == "prod"


def test_a_context_left_in_another_file_by_a_crash_is_withdrawn(
    config: UpConfig, manner: list[str], tmp_path: Path
) -> None:
    start(config)
    for part in ("restarter", "server"):
        kill(config, part)
    start(config._replace(kubeconfig=tmp_path / "other"))
    assert not config.kubeconfig.exists()
    assert (tmp_path / "other").exists()


def test_a_list_that_cannot_be_written_is_a_warning(config: UpConfig, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said: list[str] = []
    preparation.prepare(config._replace(root=tmp_path / "file" / "root"), said.append)
    assert "warning: 'kedge list' will not show this cluster" in said[0]
    assert f"kedge down --state {config.server.state}" in said[0]


def test_a_cluster_in_use_under_the_same_name_is_not_pushed_out_of_the_kubeconfig(
    config: UpConfig, manner: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"https://127.0.0.1:{other.getsockname()[1]}"
        kubeconfig.merge(
            config.kubeconfig, ClusterAccess("kedge-blue", url, b"of another", "secret")
        )
        before = config.kubeconfig.read_text()
        with pytest.raises(Failure, match=f"another cluster, at {url}: choose another --name"):
            start(config)
        assert config.kubeconfig.read_text() == before
        assert not config.server.state.exists()
    start(config)
    assert yaml.safe_load(config.kubeconfig.read_text())["current-context"] == "kedge-blue"


def test_a_cluster_that_is_deleted_while_it_is_waited_for_is_started_anew(
    config: UpConfig, manner: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = config.server.state
    state.prepare(directory, "blue")
    waits = [lambda: state.delete(directory)]
    flock = fcntl.flock

    def wait(held: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and waits:
            waits.pop()()
        flock(held, operation)

    monkeypatch.setattr(fcntl, "flock", wait)
    done, _ = start(config)
    assert not waits
    assert not done.was_running
    assert process.running(directory)
