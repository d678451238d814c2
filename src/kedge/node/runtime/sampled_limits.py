"""Limits that the supervisor enforces by sampling, where there are no control groups."""

from kedge.node.runtime.runtime import UNLIMITED, ContainerLimits, RuntimeLevel


def sampling_notice(limits: ContainerLimits, level: RuntimeLevel) -> str:
    """Return the limits of a container that are sampled, in words; empty if the kernel enforces
    all."""
    if level is RuntimeLevel.FULL:
        return ""
    named = {"memory": limits.memory_limit, "processes": limits.pids_limit}
    sampled = [name for name, value in named.items() if value not in (None, UNLIMITED)]
    if not sampled:
        return ""
    return (
        f"no control groups are available: the use of {' and '.join(sampled)} is checked at least"
        " once a second, and the container is killed if it exceeds its limit"
    )
