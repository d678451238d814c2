"""Containers that write more output than their log may hold."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kedge.machinery.clock import SystemClock

MI = 1 << 20
MOST = 5 * 10 * MI
"""Five files of ten mebibytes, as the kubelet has it."""


def size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*.log*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def test_a_log_is_never_longer_than_its_limit(pods: Any, agent: Any) -> None:
    """The log reached gigabytes between two checks of its size."""
    pods.create("loud", "exec yes 0123456789012345678901234567890123456789")
    pods.ready("loud")
    [logs] = (agent.node / "logs").glob(f"{pods.namespace}_loud_*")
    clock = SystemClock()
    end, largest = clock.monotonic() + 6, 0
    while clock.monotonic() < end and largest <= 2 * MOST:
        largest = max(largest, size(logs))
        time.sleep(0.02)
    pods.delete("loud", gracePeriodSeconds=0)
    assert 2 * 10 * MI < largest <= MOST


def test_who_follows_a_log_misses_nothing_when_it_is_cut(pods: Any, any_kubectl: Any) -> None:
    """60 MB at 4 to 8 MB a second: six files; the first one is removed."""
    script = (
        "i=0; while [ $i -lt 60 ];"
        " do seq -f '%.0f xxxxxxxxxxxxxxxx' $((i*30000)) $((i*30000+29999));"
        " i=$((i+1)); sleep 0.15; done"
    )
    pods.create("said", script, restartPolicy="Never")
    pods.when("said", lambda pod: pod["status"].get("phase") in ("Running", "Succeeded"))
    said = any_kubectl("logs", "-f", "said").stdout
    numbers = [int(line.split()[0]) for line in said.splitlines()]
    assert numbers == list(range(60 * 30_000))


def test_the_node_goes_on_while_containers_shout(
    pods: Any, responds: Callable[[str], None]
) -> None:
    for number in range(3):
        pods.create(f"loud-{number}", "exec yes")
    for number in range(3):
        pods.ready(f"loud-{number}")
    responds("others")
