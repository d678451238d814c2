"""Limits that the supervisor enforces by sampling."""

import pytest

from kedge.node.runtime.runtime import ContainerLimits
from kedge.node.runtime.sampled_limits import sampling_notice
from kedge.supervisor.machine_capabilities import ADVISORY, FULL, KERNEL, PLAIN, USERNS, of_level

BOTH = ContainerLimits(memory_limit=1 << 20, pids_limit=5)


@pytest.mark.parametrize("level", [USERNS, PLAIN])
def test_sampled_limits_are_named(level: str) -> None:
    machine = of_level(level)
    assert "the use of memory and processes is checked" in sampling_notice(BOTH, machine)
    memory = ContainerLimits(memory_limit=1 << 20, pids_limit=-1)
    assert "the use of memory is checked" in sampling_notice(memory, machine)


def test_a_limit_that_the_kernel_enforces_is_not_named() -> None:
    machine = of_level(USERNS)._replace(memory=KERNEL)
    assert "the use of processes is checked" in sampling_notice(BOTH, machine)


def test_there_is_no_notice_without_a_sampled_limit() -> None:
    assert sampling_notice(BOTH, of_level(FULL)) == ""
    assert sampling_notice(ContainerLimits(cpu_quota=-1), of_level(USERNS)) == ""
    advisory = of_level(USERNS)._replace(cpu=ADVISORY, memory=ADVISORY, pids=ADVISORY)
    assert sampling_notice(ContainerLimits(cpu_quota=1000, memory_limit=1), advisory) == ""


def test_a_container_above_its_cpu_limit_is_stopped_not_killed() -> None:
    limits = ContainerLimits(cpu_quota=1000)
    assert sampling_notice(limits, of_level(USERNS)) == (
        "no control groups are available: the container is stopped for fractions of a second while"
        " it exceeds its cpu limit"
    )
