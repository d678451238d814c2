"""The machine's capabilities as labels and annotations of the Node."""

from typing import Final

from kedge.supervisor.machine_capabilities import MachineCapabilities

LEVEL_LABEL: Final = "kedge.dev/level"
LIMITS_LABEL: Final = "limits.kedge.dev/"
"""The beginning of the labels that say how each limit is enforced, for node selectors."""
CONTROL_GROUPS: Final = "kedge.dev/control-groups"
ISOLATION: Final = "kedge.dev/isolation"
LIMITS: Final = "kedge.dev/limits"
ANNOTATIONS: Final = (CONTROL_GROUPS, ISOLATION, LIMITS)


def enforcement(machine: MachineCapabilities) -> dict[str, str]:
    """Return how the limits of each resource are enforced: kernel, sampled or advisory."""
    return {
        "cpu": machine.cpu,
        "ephemeral-storage": machine.ephemeral_storage,
        "memory": machine.memory,
        "pids": machine.pids,
    }


def capability_labels(machine: MachineCapabilities) -> dict[str, str]:
    """Return the labels of the Node that nodes of other capabilities have with other values."""
    limits = {f"{LIMITS_LABEL}{name}": value for name, value in enforcement(machine).items()}
    return {LEVEL_LABEL: machine.level, **limits}


def capability_annotations(machine: MachineCapabilities) -> dict[str, str]:
    """Return the annotations of the Node, which `kubectl describe node` shows one per line."""
    return {
        CONTROL_GROUPS: ", ".join(machine.controllers) or "none",
        ISOLATION: _listed(
            {
                "namespaces": _yes(machine.namespaces),
                "user-namespace": _yes(machine.user_namespace),
                "overlay": _yes(machine.overlay),
                "ids": machine.ids,
                "devices": machine.devices,
            }
        ),
        LIMITS: _listed(enforcement(machine)),
    }


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _listed(values: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
