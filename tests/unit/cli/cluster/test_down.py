"""What `kedge down` undoes."""

import signal
from pathlib import Path

import msgspec
import pytest
import yaml

from kedge.cli.cluster import down, registry, restarts, state
from kedge.cli.cluster.registry import ClusterLocation, RegisteredCluster
from kedge.cli.failure import Failure
from kedge.client import kubeconfig
from kedge.client.kubeconfig import ClusterAccess
from kedge.node.host import teardown


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config"


def raised(root: Path, name: str, config: Path) -> RegisteredCluster:
    """A cluster as `kedge up` leaves it, but for a server."""
    cluster = state.prepare(root / name, name)
    before = kubeconfig.merge(config, ClusterAccess(f"kedge-{name}", "https://x", b"pem", "token"))
    cluster = msgspec.structs.replace(
        cluster,
        kubeconfig=str(config),
        previous_context=before.context,
        kubeconfig_existed=before.existed,
    )
    state.write(root / name, cluster)
    return RegisteredCluster(cluster, root / name)


def current(config: Path) -> str:
    return str(yaml.safe_load(config.read_text())["current-context"])


def test_a_cluster_that_does_not_run_is_no_error(root: Path, config: Path) -> None:
    said = down.take_down(raised(root, "blue", config), root, purge=False)
    assert said == f'Cluster "blue" was not running; its state is kept in {root / "blue"}.'
    assert not config.exists()


def test_a_server_that_is_stopped_alone_leaves_nodes_and_context(
    root: Path, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised(root, "blue", config)
    (root / "blue" / "server.json").write_text("{}")
    (root / "blue" / "nodes" / "node-1").mkdir(parents=True)
    monkeypatch.setattr(teardown, "teardown", lambda node: pytest.fail(f"{node} was torn down"))
    assert down.stop_server(ClusterLocation(root, "blue", None)) == 0
    said = capsys.readouterr().out
    assert said.startswith('The server of cluster "blue" was not running; its nodes and their pods')
    assert current(config) == "kedge-blue"
    assert (root / "blue" / "server.json").exists()


def test_a_server_that_cannot_be_stopped_does_not_keep_the_others_running(
    root: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised(root, "blue", config)
    for number in (2, 3):
        (root / "blue" / f"server-{number}.pid").write_text("")
    stopped: list[str] = []

    def stop(_: Path, part: str, __: float) -> bool:
        if part == "server-3":
            raise Failure("process 7 does not end")
        stopped.append(part)
        return False

    monkeypatch.setattr(restarts, "stop_process", stop)
    with pytest.raises(Failure, match="process 7 does not end"):
        down.stop_server(ClusterLocation(root, "blue", None))
    assert stopped[-2:] == ["server-2", "server"]


def test_a_server_of_no_cluster_cannot_be_stopped_alone(root: Path) -> None:
    with pytest.raises(Failure, match='there is no cluster "blue" here'):
        down.stop_server(ClusterLocation(root, "blue", None))


def test_a_cluster_that_is_not_there_is_no_error(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert down.stop(ClusterLocation(root, "blue", None), purge=True, every=False) == 0
    assert capsys.readouterr().out == 'There is no cluster "blue" here: nothing to stop.\n'


def test_purging_deletes_the_directory_and_the_entry(root: Path, config: Path) -> None:
    down.take_down(raised(root, "blue", config), root, purge=True)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("every", [False, True])
def test_a_cluster_of_another_version_can_only_be_deleted(
    root: Path, config: Path, every: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    raised(root, "blue", config)
    (root / "blue" / "cluster.json").write_text('{"layout": 7}')
    where = ClusterLocation(root, "blue", None)
    if every:
        down.stop(where, purge=False, every=True)
        assert "There is no cluster here" in capsys.readouterr().out
    else:
        with pytest.raises(Failure, match="layout 7"):
            down.stop(where, purge=False, every=False)
    assert (root / "blue").exists()
    down.stop(where, purge=True, every=every)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("order", [("blue", "green"), ("green", "blue")])
def test_in_whatever_order_clusters_go_the_users_context_comes_back(
    root: Path, config: Path, order: tuple[str, str]
) -> None:
    config.write_text("contexts:\n- context: {}\n  name: prod\ncurrent-context: prod\n")
    before = config.read_text()
    raised(root, "blue", config)
    raised(root, "green", config)
    for name in order:
        found = registry.find(ClusterLocation(root, name, None))
        assert found is not None
        down.take_down(found, root, purge=False)
    assert current(config) == "prod"
    assert yaml.safe_load(config.read_text())["contexts"] == yaml.safe_load(before)["contexts"]


@pytest.mark.parametrize("order", [("blue", "green"), ("green", "blue")])
def test_in_whatever_order_clusters_go_a_file_they_made_goes_with_them(
    root: Path, config: Path, order: tuple[str, str]
) -> None:
    raised(root, "blue", config)
    raised(root, "green", config)
    for name in order:
        found = registry.find(ClusterLocation(root, name, None))
        assert found is not None
        down.take_down(found, root, purge=False)
    assert not config.exists()


def test_a_kubeconfig_that_broke_meanwhile_is_reported_and_left_alone(
    root: Path, config: Path
) -> None:
    found = raised(root, "blue", config)
    config.write_text("clusters: {")
    with pytest.raises(Failure, match='"blue" is down, but its context is still in'):
        down.take_down(found, root, purge=False)
    assert config.read_text() == "clusters: {"


def test_a_directory_that_holds_only_a_node_is_taken_down_too(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = root / "default"
    (directory / "nodes" / "far").mkdir(parents=True)
    down.stop(ClusterLocation(root, "default", None), purge=False, every=False)
    assert capsys.readouterr().out == (
        f'Node "far" was not running; its pods are stopped; its state is kept in {directory}.\n'
    )
    down.stop(ClusterLocation(root, "other", directory), purge=False, every=False)
    assert 'Node "far"' in capsys.readouterr().out
    down.stop(ClusterLocation(root, "other", None), purge=True, every=True)
    assert 'Node "far"' in capsys.readouterr().out
    assert not directory.exists()


def test_the_trouble_of_one_cluster_keeps_no_other_from_being_stopped(
    root: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raised(root, "blue", config)
    raised(root, "green", config.with_name("other"))
    config.write_text("clusters: {")
    with pytest.raises(Failure, match='"blue" is down, but its context is still in'):
        down.stop(ClusterLocation(root, "default", None), purge=False, every=True)
    assert 'Cluster "green" was not running' in capsys.readouterr().out
    assert not config.with_name("other").exists()


def test_the_context_of_a_namesake_elsewhere_is_left_alone(root: Path, config: Path) -> None:
    found = raised(root, "blue", config)
    (found.directory / "pki").mkdir()
    (found.directory / "pki" / "ca.crt").write_bytes(b"pem of ours")
    before = config.read_text()
    down.take_down(found, root, purge=True)
    assert config.read_text() == before


def test_a_cluster_that_somebody_else_has_deleted_meanwhile_is_no_error(
    root: Path, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = raised(root, "blue", config)

    def find(where: ClusterLocation) -> RegisteredCluster:
        down.take_down(found, root, purge=True)
        return found

    monkeypatch.setattr(registry, "find", find)
    assert down.stop(ClusterLocation(root, "blue", None), purge=True, every=False) == 0
    assert "was deleted by another command at the same moment" in capsys.readouterr().out


def test_what_could_not_be_stopped_is_named_and_nothing_is_deleted(
    root: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = raised(root, "blue", config)
    for name in ("node-1", "node-2"):
        (blue.directory / "nodes" / name).mkdir(parents=True)
    ended: list[str] = []

    def teardown_of(node: Path) -> str:
        ended.append(node.name)
        return "processes do not end" if node.name == "node-1" else ""

    monkeypatch.setattr(teardown, "teardown", teardown_of)
    with pytest.raises(
        Failure, match='"blue" was not stopped completely: node "node-1": processes do not'
    ):
        down.take_down(blue, root, purge=True)
    assert ended == ["node-1", "node-2"]
    assert (blue.directory / "cluster.json").exists()


def test_an_end_that_takes_too_long_is_given_up(
    root: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = raised(root, "blue", config)
    (blue.directory / "nodes" / "node-1").mkdir(parents=True)
    monkeypatch.setattr(down, "_NODE_SECONDS", 0.01)
    monkeypatch.setattr(teardown, "teardown", lambda _: signal.pause())
    with pytest.raises(Failure, match=r'"node-1" runs could not be ended within 0\.01 s'):
        down.take_down(blue, root, purge=True)


def test_a_command_that_never_ends_is_not_waited_for_for_ever(
    root: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = raised(root, "blue", config)
    monkeypatch.setattr(down, "_TURN_SECONDS", 0.01)
    with (
        state.changing(blue.directory),
        pytest.raises(Failure, match="another kedge command has been starting or stopping"),
    ):
        down.take_down(blue, root, purge=True)
    down.take_down(blue, root, purge=True)
    assert list(root.iterdir()) == []
