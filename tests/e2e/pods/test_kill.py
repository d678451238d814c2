"""Whatever of kedge is killed, and when: no pod is lost, none runs twice, nothing is left."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.cluster import process
from kedge.machinery.clock import SystemClock
from kedge.node.network.bridge import link_name
from kedge.supervisor.kernel import processes

Json = dict[str, Any]

CGROUPS = Path("/sys/fs/cgroup")
SECONDS = float(os.environ.get("KEDGE_E2E_KILL_SECONDS", "20"))
"""For how long each of the loops goes on killing."""
WAVES = int(os.environ.get("KEDGE_E2E_WAVES", "2"))
"""How often a hundred pods are made and deleted."""
SEED = int(os.environ.get("KEDGE_E2E_SEED", "5"))

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)


class Victim:
    """A cluster with one node, and what can be seen of it from outside."""

    def __init__(self, own: Any, pods: Callable[[Any, str], Any], told: Path) -> None:
        self.own = own
        self.state: Path = own.state
        self.told = told
        self.cluster = own.up("--nodes=1")
        self.api = self.cluster.api
        self.pods = pods(self.api, "default")
        self.kills: Counter[str] = Counter()

    # Killing.

    def pid(self, part: str) -> int | None:
        """The process that is the server, the agent, the supervisor or the parent of both."""
        if part == "supervisor":
            # Those that it has just forked look like itself, but are younger.
            named = [pid for pid, name in self.supervisors().items() if name == "kedge-superv"]
            births = {pid: processes.began(pid) for pid in named}
            return min(filter(births.get, births), key=births.__getitem__, default=None)
        place = self.state / "nodes" / "node-1" if part == "agent" else self.state
        names = {"server": "server", "agent": "node", "parent": "restarter"}
        found = process.running(place, names[part])
        return found.pid if found else None

    def supervisors(self) -> dict[int, str]:
        """The supervisor, its launcher and what they have just forked, with their names."""
        runtime = f"{self.state}/nodes/node-1/runtime"
        found = {}
        for pid, words in commands():
            if runtime in words and "kedge" in "".join(words):
                with contextlib.suppress(OSError):
                    found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
        return found

    def kill(self, part: str) -> None:
        pid = self.pid(part)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self.kills[part] += 1

    def revive(self) -> None:
        self.own.kedge("up", *self.own.which, f"--kubeconfig={self.own.kubeconfig}", "--nodes=1")

    # Pods that leave traces.

    def create(self, name: str, *, lasts: bool) -> None:
        """One that says when it starts, and that it is not alone if that is so."""
        script = (
            f"exec 9>/told/{name}.lock; flock -n 9 || echo {name} >> /told/double;"
            f" echo {name} >> /told/starts; " + ("exec sleep 1000" if lasts else "sleep 0.2")
        )
        self.pods.create(
            name,
            script,
            restartPolicy="Always" if lasts else "Never",
            volumes=[{"name": "told", "hostPath": {"path": str(self.told)}}],
            container={"volumeMounts": [{"name": "told", "mountPath": "/told"}]},
        )

    def starts(self) -> Counter[str]:
        file = self.told / "starts"
        return Counter(file.read_text().split()) if file.exists() else Counter()

    # Looking.

    def listed(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.api.get(self.pods.path)["items"]}

    def traces(self) -> dict[str, list[str]]:
        """All that there is on the machine because of this cluster's pods."""
        node = self.state / "nodes" / "node-1"
        mounted = Path("/proc/self/mountinfo").read_text().splitlines()
        hierarchies = [CGROUPS, *CGROUPS.iterdir()]
        roots = [each / "kedge" / f"{self.own.name}-node-1" for each in hierarchies]
        return {
            "processes": [" ".join(words) for _, words in commands(node)],
            "mounts": [line for line in mounted if str(self.state) in line],
            "cgroups": [str(d) for root in roots if root.exists() for d in root.rglob("pod*")],
            "links": ports(link_name("kbr", str(node / "network"))),
            "directories": [
                str(each) for each in (*entries(node / "pods"), *entries(node / "logs"))
            ],
            "records": [
                str(each)
                for kind in ("containers", "sandboxes", "trash")
                for each in entries(node / "runtime" / kind)
            ],
            "addresses": [str(each) for each in entries(node / "network" / "addresses")],
            "rules": rules(link_name("kbr", str(node / "network"))),
        }


def entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.exists() else []


def commands(node: Path | None = None) -> Iterator[tuple[int, list[str]]]:
    """The processes of this machine; of the containers of one node, if it is named."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            # A container has files of its pod mounted, such as /etc/hosts.
            if node is None or f"{node}/pods/" in (each / "mountinfo").read_text():
                words = (each / "cmdline").read_text().split("\0")
                # One that has ended and waits for its parent to notice has none.
                if words != [""]:
                    yield int(each.name), words
        except OSError:
            continue


def ports(bridge: str) -> list[str]:
    inside = Path("/sys/class/net") / bridge / "brif"
    return [each.name for each in inside.iterdir()] if inside.exists() else []


def rules(mark: str) -> list[str]:
    """What is said of a link to those who filter packets."""
    lists = (["nft", "list", "ruleset"], ["iptables-save"], ["ip", "rule"])
    found: list[str] = []
    for words in lists:
        if shutil.which(words[0]):
            said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
            found += [line for line in said.splitlines() if mark in line]
    return found


@pytest.fixture
def victim(
    own_cluster: Any, own_pods: Callable[[Any, str], Any], tmp_path: Path
) -> Iterator[Victim]:
    told = tmp_path / "told"
    told.mkdir()
    found = Victim(own_cluster, own_pods, told)
    yield found
    left(found)


def left(victim: Victim) -> None:
    """Nothing is, once the cluster is down."""
    node = victim.state / "nodes" / "node-1"
    bridge = link_name("kbr", str(node / "network"))
    victim.own.kedge("down", *victim.own.which, "--purge")
    assert {kind: found for kind, found in victim.traces().items() if found} == {}
    assert victim.supervisors() == {}
    assert not (Path("/sys/class/net") / bridge).exists()
    assert not [each for each in CGROUPS.glob(f"*/kedge/{victim.own.name}*") if each.exists()]


def rounds(victim: Victim, parts: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Make pods, delete pods, kill something and bring it back, until the time is up; says which
    pods are to be there for good, and which ran once. Those that were deleted are gone."""
    dice, clock = random.Random(f"{SEED} {parts}"), SystemClock()
    end = clock.monotonic() + SECONDS
    lasting: list[str] = []
    brief: list[str] = []
    deleted: list[str] = []
    while clock.monotonic() < end:
        number = len(lasting) + len(brief)
        victim.create(f"lasting-{number}", lasts=True)
        lasting.append(f"lasting-{number}")
        victim.create(f"brief-{number}", lasts=False)
        brief.append(f"brief-{number}")
        if len(lasting) > 4:
            deleted.append(lasting.pop(dice.randrange(len(lasting))))
            victim.pods.delete(deleted[-1])
        time.sleep(dice.uniform(0, 0.5))
        victim.kill(parts[len(brief) % len(parts)])
        time.sleep(dice.uniform(0, 0.3))
        victim.revive()
    for name in deleted:
        victim.pods.gone(name, within=60)
    return lasting, brief


def settled(victim: Victim, lasting: list[str], brief: list[str]) -> dict[str, Json]:
    """The pods, when every one is what it is to be."""
    for name in lasting:
        victim.pods.ready(name, within=60)
    for name in brief:
        victim.pods.over(name, within=60)
    found = victim.listed()
    assert sorted(found) == sorted([*lasting, *brief]), (
        "a pod was lost, or one that was deleted is not"
    )
    assert not (victim.told / "double").exists(), (victim.told / "double").read_text()
    return found


def restarts(pod: Json) -> int:
    [status] = pod["status"]["containerStatuses"]
    number: int = status["restartCount"]
    return number


def consistent(victim: Victim, pods: dict[str, Json], eventually: Callable[..., Any]) -> None:
    """What is on the machine is what the API says, no more and no less."""
    uids = {pod["metadata"]["uid"]: pod for pod in pods.values()}
    alive = [pod for pod in pods.values() if pod["status"]["phase"] == "Running"]

    def tidy() -> bool:
        traces = victim.traces()
        known = all(any(uid in each for uid in uids) for each in traces["directories"])
        return (
            known
            and len(traces["processes"]) == len(alive)
            and len(traces["links"]) in (0, len(alive))
            and len({each.rpartition("/pod")[2] for each in traces["cgroups"]}) in (0, len(alive))
            and sorted(victim.supervisors().values()) == ["kedge-launch", "kedge-superv"]
        )

    try:
        eventually(tidy, 70)
    except AssertionError:
        raise AssertionError(f"{len(alive)} pods run: {victim.traces()}") from None


@pytest.mark.parametrize("parts", [("agent", "server"), ("parent", "agent", "server")])
def test_agents_and_servers_die(
    victim: Victim, parts: tuple[str, ...], eventually: Callable[..., Any]
) -> None:
    """Containers do not notice, whether the parent lives to start them again or not."""
    lasting, brief = rounds(victim, parts)
    assert victim.kills.keys() == {*parts}
    pods = settled(victim, lasting, brief)
    assert {name: restarts(pods[name]) for name in lasting} == dict.fromkeys(lasting, 0)
    ended = {name: pods[name]["status"]["phase"] for name in brief}
    assert ended == dict.fromkeys(brief, "Succeeded"), [
        pods[name]["status"] for name in brief if ended[name] != "Succeeded"
    ]
    starts = victim.starts()
    assert {name: starts[name] for name in (*lasting, *brief)} == dict.fromkeys(
        (*lasting, *brief), 1
    )
    consistent(victim, pods, eventually)


def test_the_supervisor_dies(victim: Victim, eventually: Callable[..., Any]) -> None:
    """Its containers end with it, and begin again as their pods' policy says."""
    lasting, brief = rounds(victim, ("supervisor", "supervisor", "agent"))
    assert victim.kills["supervisor"]
    pods = settled(victim, lasting, brief)
    starts = victim.starts()
    for name in lasting:
        # One that was killed on its way to its program counts, though it has left no trace.
        assert 0 <= restarts(pods[name]) + 1 - starts[name] <= victim.kills["supervisor"], name
    for name in brief:
        assert starts[name] <= 1, name
        assert starts[name] == 1 or pods[name]["status"]["phase"] == "Failed", name
    consistent(victim, pods, eventually)


@pytest.mark.parametrize("together", [("supervisor",), ("supervisor", "agent")])
def test_each_death_of_the_supervisor_is_one_restart(
    victim: Victim, together: tuple[str, ...], eventually: Callable[..., Any]
) -> None:
    """Also when nobody is there to see it, and of every container alike."""
    names = [f"lasting-{number}" for number in range(3)]
    for name in names:
        victim.create(name, lasts=True)
    for kills in range(3):
        expected = dict.fromkeys(names, kills), dict.fromkeys(names, kills + 1)
        # From the second time on, a container that is started again is made to wait; and what
        # runs has said so only a moment later.
        eventually(lambda told=expected: (counted(victim), victim.starts()) == told, 45)
        if kills < 2:
            for part in together:
                victim.kill(part)
            victim.revive()
    assert not (victim.told / "double").exists()


def counted(victim: Victim) -> dict[str, int]:
    """How often the container of each pod that is ready began again."""
    return {name: restarts(pod) for name, pod in victim.listed().items() if ready(pod)}


def test_a_killed_agent_leaves_its_pods_running(victim: Victim) -> None:
    victim.create("lasting", lasts=True)
    before = victim.pods.ready("lasting")["status"]["containerStatuses"][0]
    victim.kill("parent")
    victim.kill("agent")
    assert len(victim.traces()["processes"]) == 1
    victim.revive()
    assert victim.pods.ready("lasting")["status"]["containerStatuses"][0] == before
    assert victim.starts() == {"lasting": 1}


def test_an_end_that_nobody_saw_is_told_exactly(victim: Victim) -> None:
    victim.pods.create("ending", "sleep 1; exit 7", restartPolicy="Never")
    victim.pods.ready("ending")
    # No agent is to come back before the container has ended.
    victim.kill("parent")
    victim.kill("agent")
    time.sleep(1.5)
    victim.revive()
    [status] = victim.pods.over("ending")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 7
    assert status["restartCount"] == 0


def test_everything_is_killed_and_then_taken_down(victim: Victim) -> None:
    """`kedge down` has only the files to go by; the fixture looks whether they were enough."""
    for number in range(3):
        victim.create(f"lasting-{number}", lasts=True)
    for number in range(3):
        victim.pods.ready(f"lasting-{number}")
    for part in ("parent", "agent", "server", "supervisor"):
        victim.kill(part)


@pytest.mark.timeout(120 + 60 * WAVES)
def test_a_hundred_pods_leave_the_machine_as_it_was(
    victim: Victim, eventually: Callable[..., Any]
) -> None:
    before = victim.traces()
    names = [f"one-of-many-{number}" for number in range(100)]
    for _ in range(WAVES):
        for name in names:
            victim.pods.create(name)
        eventually(lambda: all(ready(pod) for pod in victim.listed().values()), 60)
        for name in names:
            victim.pods.delete(name)
        eventually(lambda: not victim.listed(), 60)
    try:
        eventually(lambda: victim.traces() == before)
    except AssertionError:
        # To be shown what is left.
        assert victim.traces() == before


def ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
