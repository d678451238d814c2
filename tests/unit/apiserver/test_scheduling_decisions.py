"""SchedulingDecisions as clients read them: forms, selectors and pages."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kedge.api.model import ObjectMeta
from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import (
    REFUSED,
    NodeVerdict,
    SchedulingDecision,
)
from kedge.testing.local_server import TABLE, LocalServer

GROUP = "/apis/scheduling.kedge/v1alpha1"
ALL = f"{GROUP}/schedulingdecisions"
SHOP = f"{GROUP}/namespaces/shop/schedulingdecisions"
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass
class FakeDecision:
    """A decision that counts how often it is shown as a whole."""

    namespace: str
    name: str
    node: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    shown: int = 0

    def summary(self) -> SchedulingDecision:
        return SchedulingDecision(
            metadata=ObjectMeta(
                name=self.name,
                namespace=self.namespace,
                labels=self.labels,
                creationTimestamp="2030-01-01T00:00:00Z",
            ),
            scheduler="default-scheduler",
            node=self.node,
            message="" if self.node else "0/1 nodes are available: 1 Insufficient cpu.",
        )

    def whole(self) -> SchedulingDecision:
        self.shown += 1
        decision = self.summary()
        return SchedulingDecision(
            metadata=decision.metadata,
            node=decision.node,
            nodes=[NodeVerdict(name="a", verdict=REFUSED)],
        )


@dataclass
class FakeScheduler:
    decisions: list[FakeDecision]

    def why(self, namespace: str, name: str) -> SchedulingDecision | None:
        found = (
            each for each in self.decisions if (each.namespace, each.name) == (namespace, name)
        )
        return next((each.whole() for each in found), None)

    def kept(self) -> list[FakeDecision]:
        return self.decisions


@pytest.fixture
def scheduler(server: LocalServer) -> Iterator[FakeScheduler]:
    found = FakeScheduler(
        [
            FakeDecision("shop", "web", "a", {"app": "web"}),
            FakeDecision("other", "big"),
            FakeDecision("shop", "db", "b", {"app": "db"}),
        ]
    )
    server.components.set_scheduler(found)
    yield found
    server.components.set_scheduler(None)


def names(listed: Any) -> list[str]:
    return [each["metadata"]["name"] for each in listed["items"]]


@pytest.mark.parametrize("path", [ALL, SHOP, f"{SHOP}/web"])
async def test_without_a_scheduler_in_this_process_it_is_503(
    server: LocalServer, path: str
) -> None:
    answer = await server.call("GET", path)
    assert (answer.status, answer.reason) == (503, "ServiceUnavailable")
    assert "no scheduler is at work in this server" in answer.message


async def test_one_decision_is_an_object(server: LocalServer, scheduler: FakeScheduler) -> None:
    assert await server.get(f"{SHOP}/web") == {
        "kind": "SchedulingDecision",
        "apiVersion": "scheduling.kedge/v1alpha1",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": {"app": "web"},
        },
        "node": "a",
        "nodes": [{"name": "a", "verdict": "refused"}],
    }


async def test_a_pod_that_does_not_exist_has_none(
    server: LocalServer, scheduler: FakeScheduler
) -> None:
    answer = await server.call("GET", f"{SHOP}/none")
    assert answer.status == 404
    assert answer.message == 'schedulingdecisions.scheduling.kedge "none" not found'


async def test_lists_are_sorted_and_within_a_namespace(
    server: LocalServer, scheduler: FakeScheduler
) -> None:
    listed = await server.get(ALL)
    assert (listed["kind"], listed["metadata"]) == ("SchedulingDecisionList", {})
    assert names(listed) == ["big", "db", "web"]
    assert names(await server.get(SHOP)) == ["db", "web"]
    assert (await server.get(f"{SHOP}/web")).items() >= listed["items"][2].items()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("labelSelector=app%3Dweb", ["web"]),
        ("labelSelector=!app", ["big"]),
        ("fieldSelector=node%3Db", ["db"]),
        ("fieldSelector=node%3D", ["big"]),
        ("fieldSelector=metadata.name%3Dbig,metadata.namespace%3Dother", ["big"]),
        ("fieldSelector=metadata.namespace!%3Dother", ["db", "web"]),
    ],
)
async def test_selectors(
    server: LocalServer, scheduler: FakeScheduler, query: str, found: list[str]
) -> None:
    assert names(await server.get(f"{ALL}?{query}")) == found


async def test_a_selector_is_matched_over_several_turns(
    server: LocalServer, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []

    async def give_way() -> None:
        turns.append(1)

    monkeypatch.setattr(server.app.api.clock, "give_way", give_way)
    many = {f"label-{number}": "x" * 60 for number in range(1000)}
    scheduler.decisions[:] = [FakeDecision("shop", f"p{n}", labels=many) for n in range(5)]
    assert len(names(await server.get(f"{SHOP}?labelSelector=label-1"))) == 5
    assert len(turns) == 5


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("fieldSelector=spec.x%3Da", 400, "field label not supported: spec.x"),
        ("labelSelector=a%3D%3D%3D", 400, "found"),
        ("continue=!", 400, "continue key is not valid"),
        ("resourceVersion=7&resourceVersionMatch=Exact", 410, "too old. (7)"),
        ("watch=true", 405, "does not allow this method"),
    ],
)
async def test_refused_queries(
    server: LocalServer, scheduler: FakeScheduler, query: str, status: int, message: str
) -> None:
    answer = await server.call("GET", f"{ALL}?{query}")
    assert answer.status == status
    assert message in answer.message


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", SHOP), ("PUT", f"{SHOP}/web"), ("DELETE", f"{SHOP}/web"), ("DELETE", SHOP)],
)
async def test_decisions_can_only_be_read(
    server: LocalServer, scheduler: FakeScheduler, method: str, path: str
) -> None:
    assert (await server.call(method, path, {})).status == 405


async def test_pages(server: LocalServer, scheduler: FakeScheduler) -> None:
    first = await server.get(f"{ALL}?limit=2")
    assert names(first) == ["big", "db"]
    assert first["metadata"]["remainingItemCount"] == 1
    more = first["metadata"]["continue"]
    scheduler.decisions[:] = [each for each in scheduler.decisions if each.name != "db"]
    rest = await server.get(f"{ALL}?limit=2&continue={more}")
    assert (names(rest), rest["metadata"]) == (["web"], {})


async def test_a_table_needs_no_nodes(server: LocalServer, scheduler: FakeScheduler) -> None:
    table = await server.get(ALL, accept=TABLE)
    heads = [each["name"] for each in table["columnDefinitions"]]
    assert heads == ["Name", "Node", "Verdict", "Age", "Message"]
    message = "0/1 nodes are available: 1 Insufficient cpu."
    assert [row["cells"] for row in table["rows"]] == [
        ["big", "<none>", "Unschedulable", "0s", message],
        ["db", "b", "Scheduled", "0s", ""],
        ["web", "a", "Scheduled", "0s", ""],
    ]
    await server.get(ALL, accept=PARTIAL)
    assert [each.shown for each in scheduler.decisions] == [0, 0, 0]
    whole = await server.get(f"{ALL}?includeObject=Object", accept=TABLE)
    assert whole["rows"][1]["object"]["nodes"] == [{"name": "a", "verdict": "refused"}]


async def test_yaml(server: LocalServer, scheduler: FakeScheduler) -> None:
    text = (await server.call("GET", SHOP, accept="application/yaml")).text
    assert text.startswith("apiVersion: scheduling.kedge/v1alpha1\nitems:\n- metadata:")
    scheduler.decisions.clear()
    text = (await server.call("GET", SHOP, accept="application/yaml")).text
    assert "items: []\n" in text


async def test_discovery_and_openapi_know_the_kind(server: LocalServer) -> None:
    assert (await server.get(f"{GROUP}/"))["resources"] == [
        {
            "name": "schedulingdecisions",
            "singularName": "schedulingdecision",
            "namespaced": True,
            "kind": "SchedulingDecision",
            "verbs": ["get", "list"],
        }
    ]
    document = await server.get("/openapi/v3/apis/scheduling.kedge/v1alpha1")
    kind = document["components"]["schemas"]["kedge.scheduling.v1alpha1.SchedulingDecision"]
    assert kind["description"] == "The latest attempt to place the pod of the same name."
    assert kind["properties"]["node"]["description"].startswith("The node that the pod goes to")
    swagger = json.loads((await server.call("GET", "/openapi/v2")).text)
    assert "kedge.scheduling.v1alpha1.NodeVerdict" in swagger["definitions"]


async def test_groups_of_kubernetes_come_first(server: LocalServer) -> None:
    groups = [group["name"] for group in (await server.get("/apis"))["groups"]]
    assert groups[-3:] == ["metrics", "metrics.k8s.io", "scheduling.kedge"]
