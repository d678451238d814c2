"""Which taints nodes deserve, and how long pods bear them."""

from typing import Any

import pytest

from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import Node, Taint
from kedge.api.core_v1.pod.affinity import Toleration
from kedge.controllers.nodes import condition_taints

AT = "2030-01-01T00:00:00Z"
BAD = Taint(key="bad", effect="NoExecute")
WORSE = Taint(key="worse", effect="NoExecute")


def node(*conditions: tuple[str, str], taints: Any = (), unschedulable: bool = False) -> Node:
    said = [{"type": kind, "status": status} for kind, status in conditions]
    spec = {"taints": list(taints), "unschedulable": unschedulable}
    return RESOURCE.from_document(
        {"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": said}}
    )


def bears(key: str, seconds: int | None = None) -> Toleration:
    return Toleration(key=key, operator="Exists", tolerationSeconds=seconds)


@pytest.mark.parametrize(
    ("tolerations", "taints", "seconds"),
    [
        ([], [BAD], 0.0),
        ([bears("bad")], [BAD], None),
        ([bears("bad", 30)], [BAD], 30.0),
        ([bears("bad", -5)], [BAD], 0.0),
        ([bears("bad", 30), bears("worse", 10)], [BAD, WORSE], 10.0),
        ([bears("bad", 30), bears("worse")], [BAD, WORSE], 30.0),
        ([bears("bad", 30)], [BAD, WORSE], 0.0),
        ([bears("bad", 30), bears("other", 1)], [BAD], 30.0),
        ([Toleration(operator="Exists")], [BAD, WORSE], None),
    ],
)
def test_patience_is_that_of_the_toleration_which_ends_first(
    tolerations: list[Toleration], taints: list[Taint], seconds: float | None
) -> None:
    assert condition_taints.tolerated_seconds(tolerations, taints) == seconds


@pytest.mark.parametrize(
    ("condition", "key"),
    [
        (("Ready", "False"), "not-ready"),
        (("Ready", "Unknown"), "unreachable"),
        (("MemoryPressure", "True"), "memory-pressure"),
        (("DiskPressure", "True"), "disk-pressure"),
        (("PIDPressure", "True"), "pid-pressure"),
        (("NetworkUnavailable", "True"), "network-unavailable"),
    ],
)
def test_conditions_keep_new_pods_away(condition: tuple[str, str], key: str) -> None:
    [taint] = condition_taints.updated_taints(node(condition), "", AT)
    assert taint == Taint(key=f"node.kubernetes.io/{key}", effect="NoSchedule", timeAdded=AT)


def test_a_cordoned_node_is_tainted_so() -> None:
    [taint] = condition_taints.updated_taints(node(("Ready", "True"), unschedulable=True), "", AT)
    assert (taint.key, taint.effect) == ("node.kubernetes.io/unschedulable", "NoSchedule")


def test_a_node_that_is_well_keeps_only_the_taints_of_others() -> None:
    foreign = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    own = {"key": condition_taints.UNREACHABLE, "effect": "NoExecute"}
    mine = {"key": condition_taints.NOT_READY, "effect": "PreferNoSchedule"}
    found = condition_taints.updated_taints(
        node(("Ready", "True"), taints=[foreign, own, mine]), "", AT
    )
    assert [(each.key, each.effect) for each in found] == [
        ("dedicated", "NoSchedule"),
        (condition_taints.NOT_READY, "PreferNoSchedule"),
    ]


def test_pods_are_driven_away_by_one_taint_at_a_time() -> None:
    was = [
        {"key": condition_taints.NOT_READY, "effect": effect}
        for effect in ("NoExecute", "NoSchedule")
    ]
    silent = node(("Ready", "Unknown"), taints=was)
    assert condition_taints.eviction_key(silent) == condition_taints.NOT_READY
    found = condition_taints.updated_taints(
        silent, condition_taints.required_eviction_key(silent), AT
    )
    assert [(each.key, each.effect) for each in found] == [
        (condition_taints.UNREACHABLE, "NoExecute"),
        (condition_taints.UNREACHABLE, "NoSchedule"),
    ]


def test_a_taint_that_stays_keeps_its_time() -> None:
    was = [
        {
            "key": condition_taints.UNREACHABLE,
            "effect": "NoSchedule",
            "timeAdded": "2029-01-01T00:00:00Z",
        }
    ]
    [taint] = condition_taints.updated_taints(node(("Ready", "Unknown"), taints=was), "", AT)
    assert taint.timeAdded == "2029-01-01T00:00:00Z"
