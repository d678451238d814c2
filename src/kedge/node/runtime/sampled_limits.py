"""Limits that the supervisor enforces by sampling, where there are no control groups."""

from kedge.node.runtime.runtime import UNLIMITED, ContainerLimits
from kedge.supervisor.machine_capabilities import SAMPLED, MachineCapabilities


def sampling_notice(limits: ContainerLimits, machine: MachineCapabilities) -> str:
    """Return the limits of a container that are sampled, in words; empty if the kernel enforces
    all."""
    notices = [_killing_notice(limits, machine), _stopping_notice(limits, machine)]
    said = ", and ".join(filter(None, notices))
    return f"no control groups are available: {said}" if said else ""


def _stopping_notice(limits: ContainerLimits, machine: MachineCapabilities) -> str:
    if machine.cpu != SAMPLED or limits.cpu_quota in (None, UNLIMITED):
        return ""
    return "the container is stopped for fractions of a second while it exceeds its cpu limit"


def _killing_notice(limits: ContainerLimits, machine: MachineCapabilities) -> str:
    named = {}
    if machine.memory == SAMPLED:
        named["memory"] = limits.memory_limit
    if machine.pids == SAMPLED:
        named["processes"] = limits.pids_limit
    sampled = [name for name, value in named.items() if value not in (None, UNLIMITED)]
    if not sampled:
        return ""
    return (
        f"the use of {' and '.join(sampled)} is checked at least once a second, and the container"
        " is killed if it exceeds its limit"
    )
