"""What a container may use, on the control groups of the machine itself."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kedge.machinery.clock import SystemClock

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("full_level")

MIB = 1024 * 1024
EATER = "exec python3 -c 'eaten = bytearray(400 << 20); input()'"


def limits(**amounts: str) -> Json:
    return {"resources": {"limits": amounts}}


def number(file: Path) -> int:
    return int(file.read_text().split()[0])


def cpu_seconds(groups: Any, pod: Json) -> float:
    """What a pod's processes have used of the processors."""
    if not groups.unified:
        return number(groups.of(pod, "cpuacct") / "cpuacct.usage") / 1e9
    text = (groups.of(pod) / "cpu.stat").read_text()
    return int(text.split()[text.split().index("usage_usec") + 1]) / 1e6


def test_who_takes_too_much_memory_is_killed_and_it_is_told(
    any_kubectl: Any, pods: Any, about: Any
) -> None:
    pods.create("eater", EATER, restartPolicy="Never", container=limits(memory="64Mi"))
    ended = about.state(pods.over("eater"))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    [shown] = any_kubectl.table("get pods")
    assert shown["STATUS"] == "OOMKilled"


def test_a_child_that_is_killed_for_memory_does_not_end_the_container(
    pods: Any, about: Any
) -> None:
    script = f'sh -c "{EATER}"; echo it ended with $? > /dev/termination-log'
    pods.create("parent", script, restartPolicy="Never", container=limits(memory="64Mi"))
    pod = pods.over("parent")
    # A container is killed as a whole where the kernel can do that, as upstream has it.
    ended = about.state(pod)["terminated"]
    if ended["exitCode"]:
        assert ended["reason"] == "OOMKilled"
    else:
        assert ended["message"] == "it ended with 137\n"


def test_memory_is_not_made_up_for_by_swap_or_by_a_volume_in_memory(pods: Any, about: Any) -> None:
    volume = {"name": "fast", "emptyDir": {"medium": "Memory"}}
    mounts = {"volumeMounts": [{"name": "fast", "mountPath": "/fast"}]}
    pods.create(
        "filler",
        "exec head -c 200M /dev/zero > /fast/file",
        restartPolicy="Never",
        volumes=[volume],
        container={**limits(memory="64Mi"), **mounts},
    )
    pod = pods.over("filler")
    ended = about.state(pod)["terminated"]
    # The volume is no larger than the limit, so either of the two may come first.
    assert ended["reason"] in ("OOMKilled", "Error"), ended
    assert ended["exitCode"] != 0


def test_a_cpu_limit_holds(pods: Any, groups: Any) -> None:
    pods.create("busy", "while :; do :; done", container=limits(cpu="300m"))
    pod = pods.ready("busy")
    time.sleep(1)
    clock = SystemClock()
    used, began = cpu_seconds(groups, pod), clock.monotonic()
    time.sleep(10)
    share = (cpu_seconds(groups, pod) - used) / (clock.monotonic() - began)
    assert share <= 0.3 * 1.05
    # How much less it gets is up to whoever else is busy on this machine.
    assert share > 0.1


def test_a_fork_bomb_stays_inside(pods: Any, groups: Any, eventually: Any) -> None:
    bomb = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.5)\n"
    pods.create("bomb", container={"command": ["python3", "-c", bomb], **limits(cpu="500m")})
    pod = pods.ready("bomb")
    allowed = number(groups.of(pod, "pids") / "pids.max")
    current = groups.of(pod, "pids") / "pids.current"
    eventually(lambda: number(current) == allowed)
    pods.delete("bomb", gracePeriodSeconds=0)
    pods.create("other", "exit 0", restartPolicy="Never")
    assert pods.over("other")["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("quality", "resources", "score"),
    [
        ("BestEffort", {}, 1000),
        ("Guaranteed", {"limits": {"cpu": "200m", "memory": "64Mi"}}, -997),
    ],
)
def test_quality_of_service(
    pods: Any, groups: Any, about: Any, quality: str, resources: Json, score: int
) -> None:
    pods.create("served", container={"resources": resources})
    pod = pods.ready("served")
    assert pod["status"]["qosClass"] == quality
    group = groups.of_container(pod)
    assert ("besteffort" in group.parts) == (quality == "BestEffort")
    [pid] = (group / "cgroup.procs").read_text().split()
    if number(Path(f"/proc/{pid}/oom_score_adj")) != score:
        # To be spared takes a privilege that root does not have everywhere.
        assert f"does not let it be {score}" in pods.events("served", "NotEnforced")[0]
    if quality == "Guaranteed":
        name = "memory.max" if groups.unified else "memory.limit_in_bytes"
        assert number(group / name) == number(groups.of(pod) / name) == 64 * MIB


def test_a_burstable_pod_has_what_it_asks_for(pods: Any, groups: Any, node: Json) -> None:
    pods.create("some", container={"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}})
    pod = pods.ready("some")
    assert pod["status"]["qosClass"] == "Burstable"
    assert "burstable" in groups.of(pod).parts
    if not groups.unified:
        assert number(groups.of_container(pod, "cpu") / "cpu.shares") == 512
    [pid] = (groups.of_container(pod) / "cgroup.procs").read_text().split()
    assert 3 <= number(Path(f"/proc/{pid}/oom_score_adj")) <= 999


def test_a_running_pod_is_resized(
    any_kubectl: Any, pods: Any, groups: Any, about: Any, eventually: Any
) -> None:
    pods.create("resized", container=limits(cpu="200m", memory="64Mi"))
    pod = pods.ready("resized")
    amounts = {"cpu": "400m", "memory": "96Mi"}
    resources = {"limits": amounts, "requests": amounts}
    more = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    any_kubectl("patch", "pod", "resized", "--subresource=resize", "--patch", json.dumps(more))
    name = "memory.max" if groups.unified else "memory.limit_in_bytes"
    eventually(lambda: number(groups.of_container(pod) / name) == 96 * MIB)
    if groups.unified:
        assert (groups.of_container(pod) / "cpu.max").read_text().split()[0] == "40000"
    else:
        assert number(groups.of_container(pod, "cpu") / "cpu.cfs_quota_us") == 40000
    pod = pods.when(
        "resized",
        lambda pod: about.status(pod)["resources"]["limits"] == amounts,
    )
    assert about.status(pod)["restartCount"] == 0
    assert about.status(pod)["allocatedResources"] == amounts


def test_no_pod_is_taken_that_does_not_fit(pods: Any, node: Json) -> None:
    pods.create("big", container={"resources": {"requests": {"memory": "100Ti"}}})
    pods.when("big", lambda pod: "Unschedulable" in str(pod["status"]))
    assert "Insufficient memory" in pods.events("big", "FailedScheduling")[0]
