"""Lines of the live view: which, and in which order."""

from typing import Any

import pytest

from kedge.api.metrics_v1alpha1 import node, pod
from kedge.cli.usage.top.live.facts import ContainerFacts, NodeFacts, PodFacts, ResourceBounds
from kedge.cli.usage.top.live.usage_rows import (
    NO_NODE,
    UsageAmount,
    UsageObjects,
    UsageRow,
    ordered,
    rows,
)
from kedge.cli.usage.top.live.view_state import Level, Place, SortOrder, ViewState

NODES = ViewState()
PODS = ViewState(place=Place(Level.PODS))


def windows(cpu: str, memory: str) -> dict[str, Any]:
    def amounts(cpu: str) -> dict[str, Any]:
        return {"mean": {"cpu": cpu, "memory": memory}, "max": {"cpu": "9"}, "95th": {"cpu": "8"}}

    return {"1m": amounts(cpu), "1h": amounts("7")}


def facts(key: str, node_: str = "n1", **more: Any) -> PodFacts:
    namespace, name = key.split("/")
    main = ContainerFacts(
        "main", "Running", 1, True, ResourceBounds(0.1, 0.5), ResourceBounds(), ""
    )
    found = PodFacts(
        namespace,
        name,
        node_,
        "Running",
        True,
        False,
        0,
        ResourceBounds(1.0, 2.0),
        ResourceBounds(None, 100.0),
        {},
        [main, main._replace(name="side")],
        "main",
    )
    return found._replace(**more)


def measured(key: str, cpu: str) -> pod.Pod:
    namespace, name = key.split("/")
    return pod.RESOURCE.from_document(
        {
            "metadata": {"name": name, "namespace": namespace},
            "containers": [{"metadata": {"name": "main"}, "metrics": windows(cpu, "50")}],
        }
    )


OBJECTS = UsageObjects(
    nodes={"n1": NodeFacts("n1", "Ready", True, 4.0, 1000.0, {"example.com/gpu": 4})},
    node_usage={
        "n1": node.RESOURCE.from_document(
            {"metadata": {"name": "n1"}, "machine": windows("2", "500")}
        )
    },
    pods={
        "shop/web": facts("shop/web", devices={"example.com/gpu": 1}),
        "shop/db": facts("shop/db", "n2"),
        "ops/log": facts("ops/log", "", status="Pending", is_well=False),
    },
    pod_usage={"shop/web": measured("shop/web", "1"), "shop/db": measured("shop/db", "500m")},
)


def keys(state: ViewState, objects: UsageObjects = OBJECTS) -> list[str]:
    return [row.key for row in rows(objects, state)]


def test_a_node_shows_usage_requests_and_room() -> None:
    first, waiting = rows(OBJECTS, NODES)
    assert first == UsageRow(
        key="n1",
        name="n1",
        status="Ready",
        pods=1,
        cpu=UsageAmount(2.0, 1.0, 4.0),
        memory=UsageAmount(500.0, 0.0, 1000.0),
        devices="gpu 1/4",
    )
    assert (waiting.key, waiting.pods, waiting.is_well) == (NO_NODE, 1, False)


def test_requests_on_a_node_are_not_known_from_one_namespace() -> None:
    first, *_ = rows(OBJECTS._replace(has_all_pods=False), NODES)
    assert first.pods is None
    assert first.cpu.request is None


def test_a_pod_without_usage_is_shown() -> None:
    assert keys(PODS) == ["shop/web", "shop/db", "ops/log"]
    last = rows(OBJECTS, PODS)[-1]
    assert last.cpu == UsageAmount(None, 1.0, 2.0)
    assert last.cpu.share is None


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Place(Level.PODS, node="n1"), ["shop/web"]),
        (Place(Level.PODS, node=NO_NODE), ["ops/log"]),
        (Place(Level.PODS, filter="SHOP"), ["shop/web", "shop/db"]),
        (Place(Level.PODS, filter="shop n2"), ["shop/db"]),
        (Place(Level.PODS, filter="pending"), ["ops/log"]),
        (Place(Level.PODS, filter="gpu"), ["shop/web"]),
        (Place(Level.PODS, filter="nothing"), []),
        (Place(Level.CONTAINERS, pod="shop/web"), ["shop/web/main", "shop/web/side"]),
        (Place(Level.CONTAINERS, filter="db"), ["shop/db/main", "shop/db/side"]),
    ],
)
def test_only_lines_of_the_place_that_match_the_filter(place: Place, expected: list[str]) -> None:
    assert keys(ViewState(place=place)) == expected


def test_a_container_is_named_with_its_pod_among_those_of_others() -> None:
    one = rows(OBJECTS, ViewState(place=Place(Level.CONTAINERS, pod="shop/web")))[0]
    assert (one.name, one.cpu) == ("main", UsageAmount(1.0, 0.1, 0.5))
    among = rows(OBJECTS, ViewState(place=Place(Level.CONTAINERS)))[0]
    assert among.name == "web/main"


@pytest.mark.parametrize(
    ("window", "statistic", "cpu"), [("1m", "max", 9.0), ("1m", "95th", 8.0), ("1h", "mean", 7.0)]
)
def test_the_window_and_the_statistic_decide(window: str, statistic: str, cpu: float) -> None:
    state = PODS._replace(window=window, statistic=statistic)
    assert rows(OBJECTS, state)[0].cpu.used == cpu


ROWS = [
    UsageRow("b", status="Running", restarts=1, cpu=UsageAmount(2.0, 1.0), node="n1"),
    UsageRow("a", status="Error", is_well=False, restarts=3, cpu=UsageAmount(1.0, 0.1), node="n2"),
    UsageRow("c", status="Running", restarts=1, node="n1"),
]


@pytest.mark.parametrize(
    ("column", "descending", "expected"),
    [
        ("cpu", True, "bac"),
        ("cpu", False, "abc"),
        ("cpu%", True, "abc"),
        ("name", False, "abc"),
        ("name", True, "cba"),
        ("status", False, "abc"),
        ("restarts", True, "abc"),
        ("restarts", False, "bca"),
        ("node", False, "bca"),
        ("memory", True, "abc"),
    ],
)
def test_order(column: str, descending: bool, expected: str) -> None:
    state = PODS._replace(sort=SortOrder(column, descending))
    assert "".join(row.key for row in ordered(ROWS, state)) == expected


@pytest.mark.parametrize(
    ("amount", "share"),
    [
        (UsageAmount(1.0, 4.0, 2.0), 0.5),
        (UsageAmount(1.0, 4.0), 0.25),
        (UsageAmount(1.0), None),
        (UsageAmount(None, 1.0, 1.0), None),
        (UsageAmount(1.0, 0.0, 0.0), None),
    ],
)
def test_the_share_is_that_of_the_limit_else_of_the_request(
    amount: UsageAmount, share: float | None
) -> None:
    assert amount.share == share
