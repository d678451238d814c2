"""Ways out of a container, taken as the author of a pod takes them.

What only the runtime can be asked for is tried in tests/contract/embedded/test_escapes.py.
"""

from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("full_level")

LINKER = """
mkdir -p /shared/work; touch /shared/made
while sleep 0.05; do
  n=$(cat /shared/number 2>/dev/null) || continue
  rmdir /shared/work 2>/dev/null; ln -sfn /proc/self/fd/$n /shared/work; echo $n > /shared/done
done
"""
"""Replaces the working directory of its neighbour by a link to the requested descriptor."""


def container(name: str, script: str, **more: Any) -> Json:
    mount = {"name": "shared", "mountPath": "/shared"}
    command = ["sh", "-c", script]
    return {"name": name, "image": "host", "command": command, "volumeMounts": [mount], **more}


def two(pods: Any, name: str, main: Json) -> None:
    """A pod with a container to be attacked and one that works for the attacker."""
    both = [main, container("linker", LINKER)]
    pods.create(name, containers=both, volumes=[{"name": "shared", "emptyDir": {}}])
    pods.ready(name)


def test_a_command_does_not_start_among_the_files_of_the_machine(
    pods: Any, cluster: Any, any_kubectl: Any
) -> None:
    """CVE-2024-21626, with nothing but an emptyDir and kubectl exec."""
    if not (cluster.home / "state").exists():
        pytest.skip("the cluster is not the suite's own: its state directory is not known")
    main = container("main", "exec sleep 1000", workingDir="/shared/work")
    two(pods, "linked", main)
    steal = "cat ../supervisor.lock ../runtime/supervisor.lock && echo escaped"
    for number in range(3, 24):
        tell = f"echo {number} > /shared/number; until grep -qx {number} /shared/done; do :; done"
        any_kubectl("exec", "linked", "-c=linker", "--", "sh", "-c", tell)
        done = any_kubectl(
            "exec", "linked", "-c=main", "--", "sh", "-c", f"ls; {steal}", check=False
        )
        assert "supervisor.sock" not in done.stdout
        assert "escaped" not in done.stdout


def test_a_program_of_the_machine_cannot_be_named(pods: Any, about: Any) -> None:
    """An image, or a command, that goes through a descriptor of the supervisor."""
    containers = [
        {
            "name": f"c{number}",
            "image": "host",
            "command": [f"/proc/self/fd/{number}/../../../../../../../../../../bin/echo"],
            "args": ["escaped"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        for number in range(3, 24)
    ]
    pods.create("named", containers=containers, restartPolicy="Never")
    pod = pods.over("named", 40)
    for each in containers:
        ended = about.state(pod, each["name"])["terminated"]
        assert ended["reason"] in ("StartError", "ContainerCannotRun"), ended
        assert "exec: " in ended["message"]


def test_masks_do_not_come_from_a_volume(pods: Any, any_kubectl: Any, tmp_path: Path) -> None:
    """CVE-2025-31133: an init container prepares what is to be /dev."""
    target = tmp_path / "target"
    target.write_text("of the machine")
    mount = {"name": "shared", "mountPath": "/prepared"}
    prepare = {
        "name": "prepare",
        "image": "host",
        "command": ["sh", "-c", f"ln -s {target} /prepared/null; mkdir /prepared/shm"],
        "volumeMounts": [mount],
    }
    main = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", "cat /proc/keys; echo written > /proc/keys"],
        "volumeMounts": [{"name": "shared", "mountPath": "/dev"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    volumes = [{"name": "shared", "emptyDir": {}}]
    spec = {"containers": [main], "initContainers": [prepare], "volumes": volumes}
    pods.create("masks", restartPolicy="Never", **spec)
    pods.over("masks", 40)
    assert "of the machine" not in any_kubectl("logs", "masks", check=False).stdout
    assert target.read_text() == "of the machine"


def test_volumes_are_not_mounted_over_proc(pods: Any, about: Any) -> None:
    """CVE-2019-16884, CVE-2023-28642."""
    mount = {"name": "shared", "mountPath": "/proc/sys"}
    main = {"name": "main", "image": "host", "command": ["true"], "volumeMounts": [mount]}
    volumes = [{"name": "shared", "emptyDir": {}}]
    pods.create("over", restartPolicy="Never", containers=[main], volumes=volumes)
    pod = pods.over("over", 40)
    assert "inside /proc" in about.state(pod)["terminated"]["message"]


def test_a_pod_that_shares_processes_and_traces_them_stays_inside(pods: Any, cluster: Any) -> None:
    """The first process of the pod had the machine's files and every capability."""
    state = cluster.home / "state"
    script = f"ls -A /proc/1/root/ /proc/1/root{state} 2>/dev/null; grep CapPrm /proc/1/status"
    security = {"capabilities": {"add": ["SYS_PTRACE"]}}
    spec = {"shareProcessNamespace": True, "container": {"securityContext": security}}
    assert pods.says("tracer", script, **spec).split() == [
        "/proc/1/root/:",
        "CapPrm:",
        "0" * 16,
    ]
