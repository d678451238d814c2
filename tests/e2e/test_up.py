"""`kedge up`, `down`, `status`, `list` as a person meets them, with all that can go wrong."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kedge.apiserver.config import UPSTREAM_ADMISSION
from kedge.cli.cluster import process
from kedge.cli.cluster.conversions import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.conftest import Outcome, Terminal

SLEEPER = """
apiVersion: v1
kind: Pod
metadata: {name: sleeper}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: host, command: [sleep, infinity]}
"""


def ok(outcome: Outcome) -> str:
    assert outcome.returncode == 0, outcome.stderr + outcome.stdout
    return outcome.stdout


def refused(outcome: Outcome, code: int = 1) -> str:
    """The one paragraph that says what is wrong."""
    assert outcome.returncode == code, outcome.stderr + outcome.stdout
    assert outcome.stderr.startswith("error: ")
    assert "Traceback" not in outcome.stderr
    return outcome.stderr


def status(terminal: Terminal, *arguments: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(terminal.kedge("status", "-o=json", *arguments).stdout)
    return told


def contexts(path: Path) -> list[str]:
    return [item["name"] for item in yaml.safe_load(path.read_text())["contexts"]]


def test_a_cluster_comes_up_serves_kubectl_and_leaves_nothing_behind(terminal: Terminal) -> None:
    said = ok(terminal.kedge("up"))
    assert 'Context "kedge-default" is now the current one' in said
    assert "kubectl get nodes" in said
    assert terminal.kubeconfig.stat().st_mode & 0o777 == 0o600

    assert "kube-system" in ok(terminal.kubectl("get", "namespaces"))
    ready = status(terminal)
    assert ready["status"] == "Ready"
    assert ready["address"].startswith("https://127.0.0.1:")
    assert ready["admission"] == list(UPSTREAM_ADMISSION)
    assert ready["storeBytes"] > 0
    assert [node["status"] for node in ready["nodes"]] == ["Running"]
    assert "Ready" in ok(terminal.kubectl("get", "nodes", "--no-headers"))
    agent = ready["nodes"][0]["pid"]

    assert 'Cluster "default" was stopped' in ok(terminal.kedge("down", "--purge"))
    assert not terminal.kubeconfig.exists()
    assert list(terminal.states.iterdir()) == []
    assert process.birth(ready["pid"]) == process.birth(agent) == ""


def test_programs_get_the_result_as_json_and_nothing_else(terminal: Terminal) -> None:
    done = terminal.kedge("up", "--nodes=0", "--output=json")
    told = json.loads(ok(done))
    assert told == {
        "name": "default",
        "url": status(terminal)["address"],
        "kubeconfig": str(terminal.kubeconfig),
        "context": "kedge-default",
        "state": str(terminal.states / "default"),
        "nodes": [],
        "wasRunning": False,
        "changed": [],
    }
    assert "API server ready" in done.stderr
    again = terminal.kedge("up", "--nodes=0", "-q")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_a_reader_that_goes_away_leaves_the_cluster_running(terminal: Terminal) -> None:
    piped = f"{sys.executable} -m kedge up --nodes=0 | head -1"
    assert ok(terminal.run("bash", "-o", "pipefail", "-c", piped)).startswith("Starting cluster")
    assert "Ready" in ok(terminal.kedge("status"))


def test_a_node_whose_agent_was_killed_is_brought_back_by_up(terminal: Terminal) -> None:
    ok(terminal.kedge("up", "--restart=never"))
    before = status(terminal)["nodes"][0]["pid"]
    os.kill(before, signal.SIGKILL)
    assert 'The agent of node "node-1" was not running and was restarted' in ok(
        terminal.kedge("up")
    )
    assert status(terminal)["nodes"][0]["status"] == "Running"
    assert status(terminal)["nodes"][0]["pid"] != before


def test_a_second_up_is_a_no_op_and_so_is_a_second_down(terminal: Terminal) -> None:
    ok(terminal.kedge("up"))
    before = status(terminal)["pid"]
    assert 'Cluster "default" is already running' in ok(terminal.kedge("up"))
    assert status(terminal)["pid"] == before
    ok(terminal.kedge("down"))
    assert 'Cluster "default" was not running' in ok(terminal.kedge("down"))


def test_a_running_cluster_is_backed_up_and_restored_beside_it(terminal: Terminal) -> None:
    ok(terminal.kedge("up", "--nodes=0"))
    ok(terminal.kubectl("create", "configmap", "kept", "--from-literal=a=b"))
    assert 'Cluster "default" is in b.kedge' in ok(terminal.kedge("backup", "b.kedge"))
    ok(terminal.kubectl("create", "configmap", "later"))
    assert "is not empty" in refused(terminal.kedge("restore", "b.kedge"))
    assert "kedge up --name copy" in ok(terminal.kedge("restore", "b.kedge", "--name=copy"))
    ok(terminal.kedge("up", "--name=copy", "--nodes=0"))
    names = ok(terminal.kubectl("--context=kedge-copy", "get", "configmaps", "-o", "name"))
    assert "configmap/kept" in names
    assert "configmap/later" not in names
    ok(terminal.kedge("down", "--purge"))
    ok(terminal.kedge("restore", "b.kedge"))
    ok(terminal.kedge("up", "--nodes=0"))
    assert "kept" in ok(terminal.kubectl("get", "configmaps"))


def test_a_cluster_of_an_older_layout_is_converted_at_start_with_a_copy_and_encrypted_objects(
    terminal: Terminal,
) -> None:
    provider = {"aesgcm": {"keys": [{"name": "k", "secret": base64.b64encode(bytes(32)).decode()}]}}
    resources = [{"resources": ["secrets"], "providers": [provider]}]
    encryption = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": resources,
    }
    (terminal.home / "encryption.json").write_text(json.dumps(encryption))
    encrypted = ("--nodes=0", "--encryption-provider-config=encryption.json")
    ok(terminal.kedge("up", *encrypted))
    ok(terminal.kubectl("create", "secret", "generic", "kept", "--from-literal=a=b"))
    ok(terminal.kedge("backup", "b.kedge"))
    ok(terminal.kedge("down"))
    record = terminal.states / "default" / "cluster.json"
    known = json.loads(record.read_text())
    record.write_text(json.dumps({**known, "layout": 1, "kept": []}))

    assert "Stopped" in ok(terminal.kedge("list"))
    assert "from layout 1 to 2" in ok(terminal.kedge("up", *encrypted))
    assert json.loads(record.read_text())["kept"] == known["kept"]
    read = ("get", "secret", "kept", "-o", "jsonpath={.data.a}")
    assert ok(terminal.kubectl(*read)) == "Yg=="
    assert len(list((terminal.states / "default" / "copies").iterdir())) == 1
    ok(terminal.kedge("down", "--purge"))
    ok(terminal.kedge("restore", "b.kedge"))
    ok(terminal.kedge("up", *encrypted))
    assert ok(terminal.kubectl(*read)) == "Yg=="


def test_settings_of_a_running_cluster_change_or_the_command_fails(terminal: Terminal) -> None:
    ok(terminal.kedge("up", "--max-pods=40"))
    server = status(terminal)["pid"]
    ok(terminal.kubectl("apply", "-f", "-", input=SLEEPER))
    ok(terminal.kubectl("run", "box", "--image=example.test/box:1", "--", "sleep", "infinity"))
    waiting = ("wait", "pod", "--for=condition=Ready", "--timeout=20s")
    ok(terminal.kubectl(*waiting, "sleeper"))
    started = terminal.kubectl("get", "pod", "sleeper", "-o", "jsonpath={.status}").stdout

    said = ok(terminal.kedge("up", "--image-map=example.test/*=host", "--nodes=2"))
    assert "--nodes is 2 now, it was 1." in said
    assert "--image-map is 'example.test/*=host' now, it was the default." in said
    ok(terminal.kubectl(*waiting, "box"))
    ok(terminal.kubectl("wait", "node/node-2", "--for=condition=Ready", "--timeout=20s"))
    assert status(terminal)["pid"] == server
    now = terminal.kubectl("get", "pod", "sleeper", "-o", "jsonpath={.status}").stdout
    assert 'restartCount":0' in now
    assert json.loads(now)["startTime"] == json.loads(started)["startTime"]
    # The server has issued the added node a certificate for its address.
    script = ["run", "on-two", "--image=host", "--restart=Never"]
    place = '--overrides={"spec":{"nodeName":"node-2","terminationGracePeriodSeconds":1}}'
    ok(terminal.kubectl(*script, place, "--", "sh", "-c", "echo here; sleep 60"))
    ok(terminal.kubectl(*waiting, "on-two"))
    assert terminal.kubectl("logs", "on-two").stdout == "here\n"

    told = refused(terminal.kedge("up", "--nodes=1"))
    assert "pod default/on-two would be lost with node-2" in told
    assert "kedge delete pod -n default on-two" in told
    ok(terminal.kubectl("delete", "pod", "on-two"))
    assert "--nodes is 1 now, it was 2." in ok(terminal.kedge("up", "--nodes=1"))
    assert ok(terminal.kubectl("get", "nodes", "-o", "name")).split() == ["node/node-1"]
    assert [each["name"] for each in status(terminal)["nodes"]] == ["node-1"]

    told = refused(terminal.kedge("up", "--max-pods=50", "--node-labels=rack=7"))
    assert "--max-pods is 40, not 50" in told
    command = "kedge up --node-labels=rack=7 --max-pods=50 --restart"
    assert f"Restart it with '{command}'." in told
    assert status(terminal)["pid"] == server
    ok(terminal.kedge(*command.split()[1:]))
    capacity = ("get", "node", "node-1", "-o", "jsonpath={.status.capacity.pods}")
    assert terminal.kubectl(*capacity).stdout == "50"
    # What the command did not name is as before.
    assert "already running" in ok(terminal.kedge("up", "--image-map=example.test/*=host"))


def test_what_was_written_is_there_after_a_restart_at_the_same_address(terminal: Terminal) -> None:
    ok(terminal.kedge("up"))
    address = status(terminal)["address"]
    ok(terminal.kubectl("create", "configmap", "kept", "--from-literal=a=b"))
    ok(terminal.kedge("down"))
    ok(terminal.kedge("up"))
    assert status(terminal)["address"] == address
    assert "kept" in ok(terminal.kubectl("get", "configmaps"))


def test_a_server_that_was_killed_is_started_again_with_all_it_had(terminal: Terminal) -> None:
    ok(terminal.kedge("up", "--restart=never"))
    ok(terminal.kubectl("create", "configmap", "kept", "--from-literal=a=b"))
    os.kill(status(terminal)["pid"], signal.SIGKILL)

    stopped = terminal.kedge("status")
    assert stopped.returncode == 1
    assert "Stopped" in stopped.stdout
    assert "ready at" in ok(terminal.kedge("up"))
    assert "kept" in ok(terminal.kubectl("get", "configmaps"))


def test_a_stale_pid_is_nobodys_business(terminal: Terminal) -> None:
    """The pid in the file is that of a living process, which must neither hinder nor be hurt."""
    with subprocess.Popen(["sleep", "60"]) as bystander:
        ok(terminal.kedge("up"))
        ok(terminal.kedge("down"))
        (terminal.states / "default" / "server.pid").write_text(f"{bystander.pid} 1\n")
        assert "was not running" in ok(terminal.kedge("down"))
        ok(terminal.kedge("up"))
        assert status(terminal)["pid"] != bystander.pid
        assert bystander.poll() is None
        bystander.kill()


def test_two_clusters_live_side_by_side(terminal: Terminal) -> None:
    ok(terminal.kedge("up", "--name=blue"))
    ok(terminal.kedge("up", "--name=green", "--store=memory", f"--state={terminal.home}/there"))
    ok(terminal.kubectl("--context=kedge-blue", "create", "namespace", "only-blue"))
    assert "only-blue" not in ok(terminal.kubectl("--context=kedge-green", "get", "ns"))
    assert contexts(terminal.kubeconfig) == ["kedge-blue", "kedge-green"]

    rows = [line.split()[:2] for line in ok(terminal.kedge("list")).splitlines()]
    assert rows == [["NAME", "STATUS"], ["blue", "Running"], ["green", "Running"]]

    ok(terminal.kedge("down", "--name=green"))
    assert ok(terminal.kubectl("config", "current-context")) == "kedge-blue\n"
    assert "only-blue" in ok(terminal.kubectl("get", "ns"))


def test_clusters_of_one_name_but_two_homes_leave_each_others_pods_alone(
    terminal: Terminal, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ok(terminal.kedge("up"))
    ok(terminal.kubectl("create", "-f", "-", input=SLEEPER))
    ok(terminal.kubectl("wait", "--for=condition=Ready", "pod/sleeper"))
    other = type(terminal)(tmp_path_factory.mktemp("home"))
    ok(other.kedge("up"))
    ok(other.kedge("down", "--purge"))
    phases = "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"
    assert ok(terminal.kubectl("get", "pod", "sleeper", "-o", phases)) == "Running 0"
    assert ok(terminal.kubectl("exec", "sleeper", "--", "echo", "here")) == "here\n"


def test_pods_do_not_see_other_clusters_of_their_user(terminal: Terminal) -> None:
    elsewhere = terminal.home / "elsewhere"
    ok(terminal.kedge("up", "--name=other", f"--state={elsewhere}", "--nodes=0"))
    assert (elsewhere / "token").exists()
    ok(terminal.kedge("up"))
    ok(terminal.kubectl("create", "-f", "-", input=SLEEPER))
    ok(terminal.kubectl("wait", "--for=condition=Ready", "pod/sleeper"))
    # They are empty for root's pods, and do not exist for those of other users.
    look = "ls -A {} 2>/dev/null || true; echo done".format
    for place in (elsewhere, terminal.states):
        shown = terminal.kubectl("exec", "sleeper", "--", "sh", "-c", look(place))
        assert ok(shown).split() == ["done"]


@pytest.mark.skipif(os.geteuid() != 0, reason="pods have ports of the machine only with root")
def test_a_host_port_leads_into_the_pod_while_the_agent_is_away(
    terminal: Terminal, eventually: Callable[..., Any]
) -> None:
    """Also if another program takes the port meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ports = f"ports: [{{containerPort: 80, hostPort: {port}, hostIP: 127.0.0.1}}]"
    ok(terminal.kedge("up", "--restart=never"))
    serve = "[python3, -m, http.server, '80']"
    pod = SLEEPER.replace("command: [sleep, infinity]", f"{ports}, command: {serve}")
    ok(terminal.kubectl("create", "-f", "-", input=pod))
    ok(terminal.kubectl("wait", "--for=condition=Ready", "pod/sleeper"))

    def answers() -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), 1) as client,
        ):
            client.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return client.recv(100).startswith(b"HTTP/1.0 200")
        return False

    eventually(answers)
    os.kill(status(terminal)["nodes"][0]["pid"], signal.SIGKILL)

    def taken() -> socket.socket | None:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
        return None

    with eventually(taken):
        assert answers()
        assert "was restarted" in ok(terminal.kedge("up"))
        assert ok(terminal.kubectl("exec", "sleeper", "--", "echo", "here")) == "here\n"
        assert answers()
    assert answers()


def test_two_ups_at_the_same_moment_start_one_cluster(terminal: Terminal) -> None:
    command = [sys.executable, "-m", "kedge", "up"]
    both = [
        subprocess.Popen(command, env=terminal.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = sorted(each.communicate(timeout=60)[0] for each in both)
    assert [each.returncode for each in both] == [0, 0]
    assert "is already running" in said[0]
    assert "ready at" in said[1]


def test_the_users_kubeconfig_is_given_back_as_it_was(terminal: Terminal) -> None:
    terminal.kubeconfig.parent.mkdir()
    for arguments in (
        ["set-cluster", "prod", "--server=https://prod.example.com"],
        ["set-credentials", "me", "--token=mine"],
        ["set-context", "prod", "--cluster=prod", "--user=me", "--namespace=shop"],
        ["use-context", "prod"],
    ):
        ok(terminal.kubectl("config", *arguments))
    before = terminal.kubeconfig.read_bytes()

    assert '(it was "prod")' in ok(terminal.kedge("up"))
    assert ok(terminal.kubectl("config", "current-context")) == "kedge-default\n"
    ok(terminal.kedge("down"))
    assert terminal.kubeconfig.read_bytes() == before


def test_kubeconfig_files_are_chosen_as_kubectl_does(terminal: Terminal) -> None:
    first, second = terminal.home / "first", terminal.home / "second"
    terminal.environment["KUBECONFIG"] = f"{first}:{second}"
    second.write_text("apiVersion: v1\nkind: Config\n")
    ok(terminal.kedge("up"))
    assert not first.exists()
    assert contexts(second) == ["kedge-default"]
    assert "default" in ok(terminal.kubectl("get", "namespaces"))


def test_a_malformed_kubeconfig_is_refused_and_left_alone(terminal: Terminal) -> None:
    terminal.kubeconfig.parent.mkdir()
    terminal.kubeconfig.write_text("clusters: [\n")
    assert "is not a kubeconfig file" in refused(terminal.kedge("up"))
    assert terminal.kubeconfig.read_text() == "clusters: [\n"
    assert ok(terminal.kedge("list")).startswith("There are no clusters here")


def test_a_port_in_use_is_refused_with_a_way_out(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(terminal.kedge("up", f"--port={port}"), 125)
    # A start that failed leaves nothing behind.
    assert ok(terminal.kedge("list")).startswith("There are no clusters here")
    assert list(terminal.states.iterdir()) == []
    assert f"127.0.0.1 port {port} is in use by another program" in said
    assert "--port" in said
    assert not terminal.kubeconfig.exists()


def test_a_directory_that_cannot_be_written_is_refused(terminal: Terminal) -> None:
    (terminal.home / "file").touch()
    said = refused(terminal.kedge("up", f"--state={terminal.home}/file/state"))
    assert f"cannot keep the cluster in {terminal.home}/file/state: Not a directory" in said
    assert "--state" in said


def test_a_directory_full_of_other_things_is_refused(terminal: Terminal) -> None:
    (terminal.home / "thesis").mkdir()
    (terminal.home / "thesis" / "chapter-1.tex").touch()
    assert "is not empty" in refused(terminal.kedge("up", f"--state={terminal.home}/thesis"))


def newer_store(state: Path) -> None:
    with sqlite3.connect(state / "store.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def no_store(state: Path) -> None:
    (state / "store.db").write_bytes(b"")


def foreign_store(state: Path) -> None:
    (state / "store.db").write_bytes(b"not a database at all, but long enough to look at" * 100)


def newer_directory(state: Path) -> None:
    content = (state / "cluster.json").read_text()
    (state / "cluster.json").write_text(content.replace(f'"layout": {LAYOUT}', '"layout": 99'))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (no_store, "store.db, which holds all objects of the cluster, is missing or empty"),
        (newer_store, "store.db has storage layout 99"),
        (foreign_store, "store.db is not a kedge store"),
        (newer_directory, "was arranged by another version of kedge (layout 99"),
    ],
)
def test_state_that_this_kedge_cannot_read_is_refused_and_kept(
    terminal: Terminal, spoil: Callable[[Path], None], complaint: str
) -> None:
    ok(terminal.kedge("up", "--name=old"))
    ok(terminal.kedge("down", "--name=old"))
    spoil(terminal.states / "old")
    before = (terminal.states / "old" / "store.db").read_bytes()
    assert complaint in refused(terminal.kedge("up", "--name=old"), 125)
    assert complaint in refused(terminal.kedge("server", "--name=old"), 78)
    if spoil is newer_directory:
        assert "Layout 99" in ok(terminal.kedge("list"))
    assert (terminal.states / "old" / "store.db").read_bytes() == before


def test_a_cluster_whose_directory_was_deleted_is_forgotten(terminal: Terminal) -> None:
    ok(terminal.kedge("up", f"--state={terminal.home}/there", "--store=memory"))
    ok(terminal.kedge("down", f"--state={terminal.home}/there", "--purge"))
    assert ok(terminal.kedge("list")).startswith("There are no clusters here")
    assert 'there is no cluster "default" here' in refused(terminal.kedge("status"))
    assert 'There is no cluster "default" here' in ok(terminal.kedge("down"))


def test_in_the_foreground_an_interrupt_stops_the_cluster(terminal: Terminal) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kedge", "up", "--foreground"],
        env=terminal.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert "ready at" in command.stdout.readline()
        assert "kedge-default" in command.stdout.readline()
        assert "default" in ok(terminal.kubectl("get", "namespaces"))
        assert status(terminal)["status"] == "Ready"
        command.send_signal(signal.SIGINT)
        assert command.wait(20) == 0
    assert not terminal.kubeconfig.exists()
    assert status(terminal)["status"] == "Stopped"


def test_a_bare_server_brings_a_kubeconfig_of_its_own(terminal: Terminal) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kedge", "server", "--port=0", "--store=memory"],
        env=terminal.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        assert "is ready at https://127.0.0.1:" in server.stderr.readline()
        kubeconfig = terminal.states / "default" / "kubeconfig"
        assert "default" in ok(terminal.kubectl(f"--kubeconfig={kubeconfig}", "get", "ns"))
        assert "already running" in refused(terminal.kedge("server", "--port=0"), 73)
        server.terminate()
        assert server.wait(20) == 0
    assert not terminal.kubeconfig.exists()
