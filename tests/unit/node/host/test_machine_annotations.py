from kedge.node.host.machine_annotations import capability_annotations, capability_labels
from kedge.supervisor.machine_capabilities import FULL, KERNEL, USERNS, of_level


def test_each_capability_is_shown() -> None:
    machine = of_level(USERNS)._replace(memory=KERNEL, controllers=("memory",))
    assert capability_annotations(machine) == {
        "kedge.dev/control-groups": "memory",
        "kedge.dev/isolation": (
            "namespaces=yes, user-namespace=yes, overlay=yes, ids=one, devices=bound"
        ),
        "kedge.dev/limits": ("cpu=sampled, ephemeral-storage=sampled, memory=kernel, pids=sampled"),
    }


def test_pods_can_select_nodes_by_enforcement() -> None:
    assert capability_labels(of_level(FULL)) == {
        "kedge.dev/level": "full",
        "limits.kedge.dev/cpu": "kernel",
        "limits.kedge.dev/ephemeral-storage": "sampled",
        "limits.kedge.dev/memory": "kernel",
        "limits.kedge.dev/pids": "kernel",
    }
