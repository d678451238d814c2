"""Killed or stopped processes of a cluster are restarted and reported, and `kedge down` ends."""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kedge.cli.cluster import process
from kedge.machinery.clock import SystemClock

if TYPE_CHECKING:
    from tests.e2e.conftest import User

Json = dict[str, Any]

SERVER, AGENT, SUPERVISOR, PARENT = "server", "agent", "supervisor", "parent"
PARTS = (SERVER, AGENT, SUPERVISOR, PARENT)
NAMES = {SERVER: "server", AGENT: "node", PARENT: "restarter"}
CGROUPS = Path("/sys/fs/cgroup")
EVENTS = "/api/v1/namespaces/default/events"
DOWN_SECONDS = 60.0
"""How long `kedge down` may take in any state of the cluster."""

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)


class Victim:
    """A cluster with one node, and its processes."""

    def __init__(self, own: Any, eventually: Callable[..., Any]) -> None:
        self.own = own
        self.state: Path = own.state
        self.node = self.state / "nodes" / "node-1"
        self.eventually = eventually

    def up(self, *flags: str) -> Any:
        self.api = self.own.up("--nodes=1", *flags).api
        return self.api

    def up_again(self) -> str:
        told: str = self.own.kedge(
            "up", *self.own.which, f"--kubeconfig={self.own.kubeconfig}", "--nodes=1"
        )
        return told

    def pid(self, part: str) -> int:
        """The process that is this part of the cluster; 0 if none is."""
        return pid_of(self.state, part)

    def signal(self, part: str, number: int = signal.SIGKILL) -> int:
        pid = self.pid(part)
        assert pid, f"there is no {part}"
        os.kill(pid, number)
        return pid

    def status(self) -> Json:
        done = subprocess.run(
            [sys.executable, "-m", "kedge", "status", *self.own.which, "-o=json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found: Json = json.loads(done.stdout)
        return found

    def death(self, part: str) -> Json:
        """What `kedge status` says of the last death of a part."""
        name = "node-1" if part == AGENT else part
        return next((one for one in self.status()["restarts"] if one["name"] == name), {})

    def is_whole(self, before: dict[str, int]) -> bool:
        """Whether every part that was killed is another process now, and the cluster works."""
        now = {part: self.pid(part) for part in before}
        if not all(now.values()) or any(now[part] == before[part] for part in before):
            return False
        try:
            conditions = self.api.get("/api/v1/nodes/node-1")["status"]["conditions"]
        except (OSError, ValueError):
            return False
        return ("Ready", "True") in {(each["type"], each["status"]) for each in conditions}

    def die_often(self) -> None:
        """Kill the server until its parent waits for 16 seconds: on a busy machine, to look at the
        status takes several."""
        for _ in range(5):
            before = {SERVER: self.signal(SERVER)}
            self.eventually(lambda before=before: self.is_whole(before), 60)
        self.signal(SERVER)

    def events(self, reason: str) -> list[str]:
        return [
            each["message"] for each in self.api.get(EVENTS)["items"] if each["reason"] == reason
        ]

    def down(self) -> None:
        """Take it down; nothing of it is left on the machine."""
        bridge = (self.node / "network" / "network").exists()
        began = SystemClock().monotonic()
        self.own.kedge("down", *self.own.which, "--purge")
        assert SystemClock().monotonic() - began < DOWN_SECONDS
        assert bridge or os.geteuid()
        assert left(self.own.name, self.state) == {}


def supervisor(runtime: Path) -> int:
    """The eldest process that was started with this directory: those that it has just forked look
    like itself."""
    found = [
        pid for pid, words in commands() if str(runtime) in words and "kedge" in "".join(words)
    ]
    return min(found, key=lambda pid: int(process.birth(pid) or 1 << 62), default=0)


def commands() -> Iterator[tuple[int, list[str]]]:
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (each / "cmdline").read_text(errors="replace").split("\0")
            if words != [""]:
                yield int(each.name), words


def left(name: str, state: Path) -> Json:
    """All that there is on the machine because of a cluster."""
    mounted = Path("/proc/self/mountinfo").read_text().splitlines()
    groups = [*CGROUPS.glob(f"kedge/{name}-*"), *CGROUPS.glob(f"*/kedge/{name}-*")]
    found = {
        "processes": [words for _, words in commands() if any(str(state) in w for w in words)],
        "mounts": [line for line in mounted if str(state) in line],
        "cgroups": [str(each) for each in groups],
        "links": links(state),
        "files": [str(state)] if state.exists() else [],
    }
    return {kind: each for kind, each in found.items() if each}


def links(state: Path) -> list[str]:
    from kedge.node.network.bridge import link_name

    bridge = link_name("kbr", str(state / "nodes" / "node-1" / "network"))
    return [each for each in os.listdir("/sys/class/net") if each == bridge]


@pytest.fixture
def victim(own_cluster: Any, eventually: Callable[..., Any]) -> Iterator[Victim]:
    yield Victim(own_cluster, eventually)
    assert left(own_cluster.name, own_cluster.state) == {} or own_cluster.state.exists()


PAIRS = [*((part,) for part in PARTS), *itertools.combinations(PARTS, 2)]


@pytest.fixture(scope="module")
def lasting_victim(
    own_clusters: Any,
    eventually: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Victim]:
    """One cluster for all pairs: to start it takes longer than to kill a part of it."""
    victim = Victim(own_clusters.own(tmp_path_factory.mktemp("killed")), eventually)
    victim.up()
    yield victim
    victim.down()


@pytest.fixture
def rested_victim(lasting_victim: Victim) -> Victim:
    """A new parent, which remembers no deaths, starts again at once what dies."""
    lasting_victim.signal(PARENT)
    lasting_victim.up_again()
    return lasting_victim


@pytest.mark.parametrize("killed", PAIRS, ids="+".join)
def test_killed_processes_are_restarted(
    rested_victim: Victim, killed: tuple[str, ...], own_pods: Callable[[Any, str], Any]
) -> None:
    """By itself, unless the parent is killed too: then with the next `kedge up`. Containers notice
    only the death of their supervisor."""
    victim, api = rested_victim, rested_victim.api
    pods = own_pods(api, "default")
    name = "-".join(killed)
    pods.create(name)
    container = pods.ready(name)["status"]["containerStatuses"][0]

    before = {part: victim.signal(part) for part in killed}
    if PARENT in killed:
        assert "already running" in (said := victim.up_again()) or "ready" in said
    victim.eventually(lambda: victim.is_whole(before))
    assert victim.status()["address"] == api.url
    now = pods.ready(name)["status"]["containerStatuses"][0]
    if SUPERVISOR in killed:
        victim.eventually(
            lambda: pods.get(name)["status"]["containerStatuses"][0]["restartCount"] == 1
        )
    else:
        assert now == container
    api.delete(f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})


def test_a_death_is_explained_in_the_status_and_by_events(victim: Victim) -> None:
    api = victim.up()
    for part in (SERVER, AGENT):
        before = {part: victim.signal(part)}
        victim.eventually(lambda before=before: victim.is_whole(before))
        assert victim.death(part)["reason"] == "was killed by signal 9 (SIGKILL)"
        assert victim.death(part)["restarts"] == 1
    killed = "was killed by signal 9 (SIGKILL)"
    victim.eventually(lambda: any(killed in said for said in victim.events("ServerRestarted")), 15)
    # The new agent is at work now. One that still starts would take the death for an old one.
    victim.eventually(lambda: any(killed in said for said in victim.events("AgentRestarted")), 15)
    before = {SUPERVISOR: victim.signal(SUPERVISOR)}
    victim.eventually(lambda: victim.is_whole(before))
    victim.eventually(
        lambda: any(
            str(before[SUPERVISOR]) in said for said in victim.events("SupervisorRestarted")
        )
    )
    told = victim.own.kedge("status", *victim.own.which)
    assert "Died server:" in told
    assert killed in told
    server = api.get("/api/v1/namespaces/default/services/kubernetes")["metadata"]["uid"]
    [event] = [each for each in api.get(EVENTS)["items"] if each["reason"] == "ServerRestarted"]
    assert event["involvedObject"]["uid"] == server


def test_a_watch_goes_on_after_the_server_has_come_back(victim: Victim) -> None:
    api = victim.up()
    path = "/api/v1/namespaces/default/configmaps"
    made = api.create(path, {"metadata": {"name": "before"}})
    version = made["metadata"]["resourceVersion"]
    before = {SERVER: victim.signal(SERVER)}
    victim.eventually(lambda: victim.is_whole(before))
    api.create(path, {"metadata": {"name": "after"}})
    request = api.request("GET", f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=5")
    with api.open(request) as stream:
        events = map(json.loads, stream)
        # A controller may have made one of its own meanwhile.
        event = next(one for one in events if one["object"]["metadata"]["name"] == "after")
    assert event["type"] == "ADDED"


def test_repeated_deaths_are_waited_for_ever_longer_and_up_does_not_wait(victim: Victim) -> None:
    victim.up()
    victim.die_often()
    victim.eventually(
        lambda: (
            (victim.status()["status"], victim.death(SERVER)["state"]) == ("Restarting", "waiting")
        )
    )
    assert "ready at" in victim.up_again()
    assert victim.status()["status"] == "Ready"
    assert victim.pid(PARENT)


def test_a_cluster_whose_server_is_waited_for_is_taken_down(victim: Victim) -> None:
    victim.up()
    victim.die_often()
    victim.eventually(lambda: victim.death(SERVER)["state"] == "waiting")
    victim.down()


def test_a_server_that_says_that_it_cannot_start_is_given_up(victim: Victim) -> None:
    victim.up()
    (victim.state / "pki" / "sa.key").write_text("damaged")
    victim.signal(SERVER)
    victim.eventually(lambda: victim.death(SERVER).get("state") == "stopped")
    death = victim.death(SERVER)
    assert "it holds no private key" in death["reason"]
    assert death["givenUp"] == "its exit code says that a restart would fail too"
    assert victim.pid(AGENT), "the agent has to do with its containers, not with the server"
    victim.down()


def test_a_server_whose_port_is_taken_waits_for_it(victim: Victim) -> None:
    victim.up()
    port = int(victim.api.url.rpartition(":")[2])
    victim.signal(PARENT, signal.SIGSTOP)
    victim.signal(SERVER)
    victim.eventually(lambda: not victim.pid(SERVER))
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        victim.signal(PARENT, signal.SIGCONT)
        victim.eventually(lambda: "in use by another program" in victim.death(SERVER)["reason"])
    victim.eventually(lambda: victim.is_whole({SERVER: 0}))
    assert victim.status()["address"] == victim.api.url


def test_a_server_that_is_killed_at_every_start_is_waited_for(victim: Victim) -> None:
    """The parent does not spin, and `kedge down` ends it."""
    victim.up()
    clock = SystemClock()
    deaths: list[float] = []
    gaps: list[float] = []
    """Seconds from each death to the next start."""
    while len(gaps) < 3:
        pid = victim.eventually(lambda: victim.pid(SERVER), 60)
        if deaths:
            gaps.append(clock.monotonic() - deaths[-1])
        os.kill(pid, signal.SIGKILL)
        deaths.append(clock.monotonic())
        victim.eventually(lambda pid=pid: victim.pid(SERVER) != pid)
    # The first one at once, the others after one second and two.
    assert gaps[1] > 0.9
    assert gaps[2] > 1.9
    victim.down()


@pytest.mark.parametrize("stopped", PARTS)
def test_a_process_that_is_stopped_keeps_nobody_from_taking_the_cluster_down(
    victim: Victim, stopped: str, own_pods: Callable[[Any, str], Any]
) -> None:
    pods = own_pods(victim.up(), "default")
    pods.create("lasting")
    pods.ready("lasting")
    victim.signal(stopped, signal.SIGSTOP)
    victim.down()


def test_everything_is_stopped_and_taken_down(
    victim: Victim, own_pods: Callable[[Any, str], Any]
) -> None:
    pods = own_pods(victim.up(), "default")
    pods.create("lasting")
    pods.ready("lasting")
    for part in PARTS:
        victim.signal(part, signal.SIGSTOP)
    victim.down()


def test_a_parent_that_dies_leaves_nothing_half_started(victim: Victim) -> None:
    """Killed while it starts a server again, and the cluster is taken down at once."""
    victim.up()
    victim.signal(SERVER)
    victim.eventually(lambda: victim.death(SERVER).get("state") in ("starting", "running"))
    victim.signal(PARENT)
    victim.down()
    time.sleep(1.5)
    assert left(victim.own.name, victim.state) == {}


@pytest.mark.parametrize("killed", [(SERVER,), (PARENT,), PARTS], ids="+".join)
def test_two_ups_at_once_start_one_cluster(victim: Victim, killed: tuple[str, ...]) -> None:
    victim.up()
    before = {part: victim.signal(part) for part in killed}
    failures: list[BaseException] = []

    def start() -> None:
        try:
            victim.up_again()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    victim.eventually(lambda: victim.is_whole(before))
    own = {f"--state={victim.state}", str(victim.state)}
    ours = [words for _, words in commands() if own & {*words}]
    assert sum("server" in words for words in ours) == 1
    assert sum("node" in words for words in ours) == 1
    assert sum("kedge.restarter" in " ".join(words) for words in ours) == 1
    victim.down()


def test_without_restarts_the_dead_stay_dead(victim: Victim) -> None:
    victim.up("--restart=never")
    assert not victim.pid(PARENT)
    victim.signal(SERVER)
    victim.eventually(lambda: not victim.pid(SERVER))
    time.sleep(1.5)
    assert victim.status()["status"] == "Stopped"
    assert "ready at" in victim.up_again()


def test_the_parent_is_small_and_idle(victim: Victim) -> None:
    victim.up()
    pid = victim.pid(PARENT)
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    [share] = [line for line in rollup.splitlines() if line.startswith("Pss:")]
    assert int(share.split()[1]) < 8 * 1024

    def is_idle() -> bool:
        before = spent(pid)
        time.sleep(2)
        return spent(pid) == before

    # It may still have something to write down about the start.
    victim.eventually(is_idle, 30)


def spent(pid: int) -> tuple[list[str], str]:
    """Return the processor time of a process, and how often it was woken up."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return stat, woken(Path(f"/proc/{pid}/status").read_text())


def woken(status: str) -> str:
    return next(line for line in status.splitlines() if line.startswith("voluntary"))


def test_the_address_of_a_dead_sandbox_is_free_at_once(
    victim: Victim, own_pods: Callable[[Any, str], Any]
) -> None:
    """Three pods in a network of five addresses outlive their supervisor. Once is enough: from the
    second time on they would be made to wait."""
    if os.geteuid():
        pytest.skip("pods have addresses of their own only with root")
    victim.up()
    network = victim.node / "network" / "network"
    victim.own.kedge("down", *victim.own.which)
    small = network.read_text().replace("/24", "/29")
    network.write_text(small)
    pods = own_pods(victim.up(), "default")
    names = [f"lasting-{number}" for number in range(3)]
    for name in names:
        pods.create(name, container={"ports": [{"containerPort": 80}]})
    for name in names:
        pods.ready(name)
    victim.signal(SUPERVISOR)
    for name in names:
        pods.when(
            name,
            lambda pod: (
                pod["status"]["containerStatuses"][0]["restartCount"] == 1
                and pod["status"]["containerStatuses"][0].get("ready")
            ),
            within=50,
        )
    taken = list((victim.node / "network" / "addresses").iterdir())
    assert len(taken) == len(names)
    victim.down()


# As an ordinary user.


def pid_of(state: Path, part: str) -> int:
    """Return the pid of a part of the cluster in this directory; 0 if it does not run."""
    node = state / "nodes" / "node-1"
    if part == SUPERVISOR:
        return supervisor(node / "runtime")
    found = process.running(node if part == AGENT else state, NAMES[part])
    return found.pid if found else 0


def test_the_cluster_of_an_ordinary_user_comes_back_too(
    ordinary_user: "User", eventually: Callable[..., Any]
) -> None:
    state = ordinary_user.states / "default"
    ordinary_user.does("up", "--nodes=1")
    for part in (SERVER, AGENT, SUPERVISOR):
        before = pid_of(state, part)
        os.kill(before, signal.SIGKILL)
        eventually(lambda part=part, before=before: pid_of(state, part) not in (0, before))
    eventually(lambda: ordinary_user.kedge("status").returncode == 0)
    for part in (PARENT, SUPERVISOR):
        os.kill(pid_of(state, part), signal.SIGSTOP)
    ordinary_user.does("down", "--purge")
    assert left("default", state) == {}
