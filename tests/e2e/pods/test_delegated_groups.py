"""A user who is not root and has control groups of their own: the kernel enforces their limits."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kedge.supervisor.kernel import cgroups

if TYPE_CHECKING:
    from tests.e2e.conftest import User

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or "KEDGE_E2E_KUBECONFIG" in os.environ
    or not all(shutil.which(tool) for tool in ("setpriv", "kubectl")),
    reason="becoming another user takes root and setpriv; and a cluster of our own, and kubectl",
)
DELEGATED = ("cpu", "cpuacct", "memory", "pids")
"""The controllers that the test delegates, as a systemd user session does."""
MOST_PROCESSES = 50


@pytest.fixture
def delegated(ordinary_user: "User") -> Iterator["User"]:
    """A user whose commands run in a delegated group, of cgroup v1 or v2."""
    machine = cgroups.here()
    if "memory" not in machine.controllers() or not machine.hierarchies:
        pytest.skip("this machine has no memory controller")
    places = [
        Path(each.mount) / ordinary_user.home.name
        for each in machine.hierarchies
        if each.unified or each.controllers & set(DELEGATED)
    ]
    with contextlib.ExitStack() as stack:
        if len(machine.hierarchies) == 1:
            only = machine.hierarchies[0]
            cgroups.enable(only.mount, only.controllers & cgroups.DELEGATED)
        for place in places:
            stack.callback(remove, place)
            give(place, ordinary_user.uid)
        as_before, sessions = ordinary_user.become, [str(place / "session") for place in places]
        joins = f"for group in {' '.join(sessions)}; do echo $$ > $group/cgroup.procs; done"
        ordinary_user.become = ["sh", "-ec", f'{joins}; exec "$@"', "sh", *as_before]
        yield ordinary_user
        ordinary_user.become = as_before
        ordinary_user.does("down", "--all", "--purge", "--yes")
        # Also from outside of these groups.
        left = [each for place in places for each in (place / "session").glob("*/")]
        assert [each for each in left if each.is_dir()] == []


def give(place: Path, uid: int) -> None:
    """Make a group, with one for a session in it, and give both to a user."""
    (place / "session").mkdir(parents=True)
    for each in (place, place / "session"):
        for path in (each, *each.iterdir()):
            os.chown(path, uid, uid)


def remove(place: Path) -> None:
    for each in sorted(place.rglob("*"), key=lambda each: -len(each.parts)):
        if each.is_dir():
            each.rmdir()
    if place.exists():
        place.rmdir()


def test_the_kernel_enforces_limits_in_delegated_groups(
    delegated: "User", eventually: Callable[..., Any]
) -> None:
    delegated.does("up", "--nodes=1", f"--pod-max-pids={MOST_PROCESSES}")
    meta = json.loads(delegated.reads("get", "node", "node-1", "-o=jsonpath={.metadata}"))
    assert meta["labels"]["kedge.dev/level"] == "userns"
    limits = {name: meta["labels"][f"limits.kedge.dev/{name}"] for name in ("memory", "pids")}
    assert limits == {"memory": "kernel", "pids": "kernel"}
    assert "memory" in meta["annotations"]["kedge.dev/control-groups"]
    greedy = "x = bytearray(200 << 20); import time; time.sleep(1000)"
    container = {
        "name": "main",
        "image": "host",
        "command": ["python3", "-c", greedy],
        "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
    }
    spec = json.dumps({"spec": {"containers": [container], "restartPolicy": "Never"}})
    delegated.reads("run", "greedy", "--image=host", f"--overrides={spec}")
    delegated.reads("wait", "--for=jsonpath={.status.phase}=Failed", "pod/greedy", "--timeout=60s")
    told = "-o=jsonpath={.status.containerStatuses[0].state.terminated}"
    ended = json.loads(delegated.reads("get", "pod", "greedy", told))
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    # By the kernel: kedge's own check would tell the figures.
    assert "message" not in ended
    if meta["labels"]["limits.kedge.dev/cpu"] == "kernel":
        container |= {"command": ["sleep", "1000"]}
        spec = json.dumps({"spec": {"containers": [container]}})
        delegated.reads("run", "slow", "--image=host", f"--overrides={spec}")
        delegated.reads("wait", "--for=condition=Ready", "pod/slow", "--timeout=60s")
        script = "cat /sys/fs/cgroup/cpu*/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null"
        said = delegated.kubectl("exec", "slow", "--", "sh", "-c", script).stdout
        assert said.split()[0] == "50000"
        forks = f"for i in $(seq {2 * MOST_PROCESSES}); do sleep 9 & done"
        assert "fork" in delegated.kubectl("exec", "slow", "--", "sh", "-c", forks).stderr
        rows = delegated.reads("get", "pods", "slow", "-o=wide").splitlines()
        assert [each.split()[-1] for each in rows] == ["LIMITS", "kernel"]
        listed = delegated.reads("get", "events", "-o=jsonpath={.items[*].message}")
        assert "cpu limit is not enforced" not in listed
