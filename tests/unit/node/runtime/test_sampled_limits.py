"""Limits that the supervisor enforces by sampling."""

import pytest

from kedge.node.runtime.runtime import ContainerLimits, RuntimeLevel
from kedge.node.runtime.sampled_limits import sampling_notice

BOTH = ContainerLimits(memory_limit=1 << 20, pids_limit=5)


@pytest.mark.parametrize("level", [RuntimeLevel.USERNS, RuntimeLevel.PLAIN])
def test_sampled_limits_are_named(level: RuntimeLevel) -> None:
    assert "the use of memory and processes is checked" in sampling_notice(BOTH, level)
    memory = ContainerLimits(memory_limit=1 << 20, pids_limit=-1)
    assert "the use of memory is checked" in sampling_notice(memory, level)


def test_there_is_no_notice_without_a_sampled_limit() -> None:
    assert sampling_notice(BOTH, RuntimeLevel.FULL) == ""
    assert sampling_notice(ContainerLimits(cpu_quota=1000), RuntimeLevel.USERNS) == ""
