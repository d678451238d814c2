"""A disk that fills up under a cluster: nothing is lost, objects can be deleted, and it
recovers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tests.e2e.attacks.conftest import SmallDisk, User

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster has to be on a disk of our own"
)

EVERY_USER = pytest.mark.parametrize("user", [0, 65534], ids=["root", "user"], indirect=True)
"""For what reserves and containers do, which differ with rights."""
MANY = 3000
"""Objects of 10 kB, more than the space that the store has in reserve."""


def config_map(name: str, size: int = 10_000) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"of": "test"}},
            "data": {"content": "x" * size},
        }
    )


def write_until_full(user: User) -> tuple[list[str], str]:
    """Which objects were acknowledged before the disk was full, and what kubectl said then."""
    written: list[str] = []
    for batch in range(MANY // 25):
        names = [f"m-{batch}-{number}" for number in range(25)]
        lines = "\n".join(config_map(name) for name in names)
        done = user.kubectl("create", "-f", "-", input=lines)
        written += [line.split()[0].split("/")[1] for line in done.stdout.splitlines()]
        if done.returncode:
            return written, done.stderr
    raise AssertionError("the disk was never full")


def readyz(user: User) -> str:
    done = user.kubectl("get", "--raw", "/readyz?verbose")
    return done.stdout + done.stderr


def names(user: User) -> set[str]:
    done = user.kubectl("get", "configmaps", "-l", "of=test", "-o", "name")
    assert done.returncode == 0, done.stderr
    return {line.split("/")[1] for line in done.stdout.splitlines()}


def test_a_full_disk_loses_nothing_and_takes_deletions(
    user: User, small_disk: SmallDisk, eventually: Callable[..., Any]
) -> None:
    user.does("up", "--nodes=0")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "test"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40},
    }
    assert user.kubectl("create", "-f", "-", input=json.dumps(lease)).returncode == 0
    small_disk.fill()
    written, said = write_until_full(user)
    assert "(InsufficientStorage)" in said
    assert "the disk that holds" in said
    assert "is full" in said
    assert "defect" not in said
    assert "[-]etcd failed: disk full" in readyz(user)
    assert "ok" in user.kubectl("get", "--raw", "/livez").stdout
    assert names(user) == {*written}

    # Leases and statuses go on, as often as it takes.
    small_disk.fill()
    for holder in range(20):
        patch = json.dumps({"spec": {"holderIdentity": f"b{holder}"}})
        done = user.kubectl("patch", "lease", "test", "--type=merge", f"-p={patch}")
        assert done.returncode == 0, done.stderr
    assert "[-]etcd failed: disk full" in readyz(user)

    # Whatever fills the disk takes all that becomes free, and still objects can be deleted.
    small_disk.fill()
    gone, kept = written[:-5], written[-5:]
    done = user.kubectl("delete", "configmap", *gone, "--wait=false")
    assert done.returncode == 0, done.stderr
    assert names(user) == {*kept}

    # What was deleted has made room in the store, though the disk is as full as before.
    eventually(lambda: "[+]etcd ok" in readyz(user))
    assert user.kubectl("create", "-f", "-", input=config_map("after")).returncode == 0
    small_disk.empty()
    assert names(user) == {*kept, "after"}


def test_a_disk_with_space_again_is_found_so_without_help(
    user: User, small_disk: SmallDisk, eventually: Callable[..., Any]
) -> None:
    user.does("up", "--nodes=0")
    small_disk.fill()
    written, _ = write_until_full(user)
    small_disk.empty()
    eventually(lambda: "[+]etcd ok" in readyz(user))
    done = user.kubectl("create", "-f", "-", input=config_map("large", 800_000))
    assert done.returncode == 0, done.stderr
    assert names(user) == {*written, "large"}
    assert user.does("status").find("Ready") > 0


@EVERY_USER
def test_a_server_that_is_killed_on_a_full_disk_starts_again(
    user: User, small_disk: SmallDisk, kill: Callable[[Path], int]
) -> None:
    user.does("up", "--nodes=0")
    small_disk.fill()
    written, _ = write_until_full(user)
    kill(small_disk.directory / "kedge" / "default")
    small_disk.fill()
    user.does("up", "--nodes=0")
    small_disk.fill()
    assert names(user) == {*written}
    done = user.kubectl("delete", "configmap", *written[:20])
    assert done.returncode == 0, done.stderr
    # A clean stop gives the space of the write-ahead log away, and the next start wants it back.
    user.does("down")
    small_disk.fill()
    user.does("up", "--nodes=0")
    assert names(user) == {*written[20:]}


@EVERY_USER
def test_containers_outlive_a_full_disk(
    user: User, small_disk: SmallDisk, eventually: Callable[..., Any]
) -> None:
    """The agent and the supervisor write records and logs on the same disk."""
    user.does("up", "--nodes=1")
    script = "while [ ! -e /tmp/end ]; do echo tick; sleep 0.1; done"
    words = ["run", "steady", "--image=host", "--restart=Never", "--", "sh", "-c", script]
    assert user.kubectl(*words).returncode == 0
    ready = user.kubectl("wait", "--for=condition=Ready", "pod/steady", "--timeout=30s")
    assert ready.returncode == 0, ready.stderr
    before = pod_status(user, "steady")
    small_disk.fill()
    write_until_full(user)
    small_disk.fill()
    # Another one cannot be stored; a command in the one there is runs all the same.
    assert "is full" in user.kubectl("run", "second", "--image=host", "--", "true").stderr
    echoed = user.kubectl("exec", "steady", "--", "echo", "inside")
    assert echoed.stdout == "inside\n", echoed.stderr
    assert pod_status(user, "steady")["containerStatuses"] == before["containerStatuses"]
    # It ends, and that is known, though no line of it could be written down.
    user.kubectl("exec", "steady", "--", "touch", "/tmp/end")
    eventually(lambda: pod_status(user, "steady")["phase"] == "Succeeded")
    small_disk.empty()
    eventually(lambda: "[+]etcd ok" in readyz(user))
    assert user.kubectl("run", "second", "--image=host", "--", "sleep", "100").returncode == 0
    ready = user.kubectl("wait", "--for=condition=Ready", "pod/second", "--timeout=30s")
    assert ready.returncode == 0, ready.stderr


def pod_status(user: User, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(user.kubectl("get", "pod", name, "-o=json").stdout)
    return found["status"]  # type: ignore[no-any-return]
