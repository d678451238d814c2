from typing import Any

import pytest

from kedge.scheduler.cycle import PreparedFilters
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filters import FILTERS
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node

ORDER = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeDeclaredFeatures",
)


def test_they_are_asked_in_the_order_of_kubernetes() -> None:
    assert tuple(each.name for each in FILTERS) == ORDER


def refusals(pod: PodDemand, snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    prepared = PreparedFilters(pod, snapshot)
    found = {name: prepared.refuses(node) for name, node in snapshot.nodes.items()}
    return {name: each[1].reasons for name, each in found.items() if each is not None}


@pytest.mark.parametrize(
    ("tolerations", "refused"),
    [
        ([], True),
        ([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}], False),
        ([{"operator": "Exists"}], False),
    ],
)
def test_a_cordoned_node_takes_only_pods_that_tolerate_it(
    tolerations: list[dict[str, str]], refused: bool
) -> None:
    snapshot = cluster(new_node("a", unschedulable=True), new_node("b"))
    found = refusals(demand(tolerations=tolerations), snapshot)
    assert found == ({"a": ("node(s) were unschedulable",)} if refused else {})


def test_taints_that_only_ask_keep_nobody_away() -> None:
    snapshot = cluster(
        new_node("a", taints=[{"key": "x", "effect": "PreferNoSchedule"}]),
        new_node("b", taints=[{"key": "x", "effect": "NoExecute"}]),
    )
    assert refusals(demand(), snapshot) == {"b": ("node(s) had untolerated taint(s)",)}


def test_a_pod_that_names_its_node() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    wrong = ("node(s) didn't match the requested node name",)
    assert refusals(demand(nodeName="b"), snapshot) == {"a": wrong}


def ports(*wanted: tuple[str, str, int]) -> dict[str, Any]:
    listed = [
        {"containerPort": number, "hostPort": number, "hostIP": address, "protocol": protocol}
        for address, protocol, number in wanted
    ]
    return {"containers": [{"name": "c", "image": "i", "ports": listed}]}


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        (("", "TCP", 80), ("", "TCP", 80), False),
        (("", "TCP", 80), ("", "UDP", 80), True),
        (("", "TCP", 80), ("", "TCP", 81), True),
        (("10.0.0.1", "TCP", 80), ("", "TCP", 80), False),
        (("", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), True),
    ],
)
def test_a_port_of_the_host_is_taken_once(
    held: tuple[str, str, int], wanted: tuple[str, str, int], free: bool
) -> None:
    snapshot = cluster(new_node("n"))
    snapshot.place(demand("other", **ports(held)), "n")
    assert (refusals(demand(**ports(wanted)), snapshot) == {}) is free


def test_too_many_pods_and_everything_that_is_short() -> None:
    snapshot = cluster(new_node("n", pods="1", ephemeral_storage="1Gi"))
    snapshot.place(demand("other"), "n")
    asked = demand(requests={"example.com/gpu": "1", "ephemeral-storage": "2Gi"})
    assert refusals(asked, snapshot)["n"] == (
        "Too many pods",
        "Insufficient example.com/gpu",
        "Insufficient ephemeral-storage",
    )


def test_a_pod_that_asks_for_nothing_fits_an_overcommitted_node() -> None:
    snapshot = cluster(new_node("n", cpu="1"))
    snapshot.place(demand("other", requests={"cpu": "2"}), "n")
    assert refusals(demand(), snapshot) == {}
    assert refusals(demand(requests={"memory": "1Gi"}), snapshot) == {}


def test_only_what_others_hold_could_be_freed() -> None:
    snapshot = cluster(new_node("n", cpu="2"))
    snapshot.place(demand("other", requests={"cpu": "2"}), "n")
    for cpu, final in (("1", False), ("3", True)):
        refusal = PreparedFilters(demand(requests={"cpu": cpu}), snapshot).refuses(
            snapshot.nodes["n"]
        )
        assert refusal is not None
        assert refusal[1].final is final
