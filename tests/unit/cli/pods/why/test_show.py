"""Why a pod is where it is, laid out for people."""

import json
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from kedge.api.model import ObjectMeta
from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import (
    DecisionSource,
    ExpectedAmounts,
    KeptDecision,
    NodeUsage,
    NodeVerdict,
    SchedulingDecision,
    ScorePoints,
    UsageAmounts,
)
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.pods.why import show as reasoning
from kedge.client.client import Client
from kedge.client.transport import Body, LocalTransport
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer

PLACED = SchedulingDecision(
    metadata=ObjectMeta(namespace="shop", name="web-0"),
    scheduler="default-scheduler",
    decidedAt="2030-01-01T00:00:00Z",
    evaluatedAt="2030-01-01T00:00:00Z",
    node="node-2",
    boundTo="node-2",
    usage=True,
    expected=ExpectedAmounts(amounts=UsageAmounts(cpu="120m", memory="80Mi"), source="siblings"),
    same=("NodeAffinity",),
    nodes=(
        NodeVerdict(
            name="node-2",
            verdict="chosen",
            total=377,
            scores=(
                ScorePoints(name="NodeResourcesFit", weight=1, value=95),
                ScorePoints(name="NodeUsage", weight=3, value=94),
            ),
            usage=NodeUsage(
                window="1h mean",
                used=UsageAmounts(cpu="240m", memory="1Gi"),
                expected=UsageAmounts(cpu="100m", memory="200Mi"),
                allocatable=UsageAmounts(cpu="8", memory="32Gi"),
                measured=True,
                pods=7,
                measuredPods=6,
            ),
        ),
        NodeVerdict(
            name="node-1",
            verdict="refused",
            filter="NodePorts",
            reasons=("node(s) didn't have free ports for the requested pod ports",),
        ),
    ),
    notAsked=3,
)

PENDING = SchedulingDecision(
    metadata=ObjectMeta(namespace="shop", name="web-1"),
    scheduler="default-scheduler",
    evaluatedAt="2030-01-01T00:00:00Z",
    message="0/1 nodes are available: 1 Insufficient cpu.",
    note="nothing has been decided yet: this is what would be decided now",
    nodes=(
        NodeVerdict(
            name="node-1",
            verdict="refused",
            filter="NodeResourcesFit",
            reasons=("Insufficient cpu",),
        ),
    ),
)


def test_a_pod_that_has_a_node() -> None:
    assert "\n".join(reasoning.laid_out(PLACED)) == (
        """\
Pod:        shop/web-0
Scheduler:  default-scheduler
Decided:    2030-01-01T00:00:00Z
Node:       node-2
Expected:   cpu 120m, memory 80Mi, as its siblings do

NODE     VERDICT   TOTAL   NodeResourcesFit x1   NodeUsage x3
node-2   chosen    377     95 (95)               282 (94)
node-1   refused by NodePorts: node(s) didn't have free ports for the requested pod ports
(3 further nodes were not asked)
No difference by: NodeAffinity

NODE     WINDOW    CPU    +NEW   OF    MEMORY   +NEW    OF     PODS   MEASURED
node-2   1h mean   240m   100m   8     1Gi      200Mi   32Gi   7      6"""
    )


def test_a_pod_that_has_none() -> None:
    assert "\n".join(reasoning.laid_out(PENDING)) == (
        """\
Pod:        shop/web-1
Scheduler:  default-scheduler
Evaluated:  2030-01-01T00:00:00Z
Note:       nothing has been decided yet: this is what would be decided now
Node:       <none>
Message:    0/1 nodes are available: 1 Insufficient cpu.

NODE     VERDICT
node-1   refused by NodeResourcesFit: Insufficient cpu"""
    )


class Known(DecisionSource):
    def why(self, namespace: str, name: str) -> SchedulingDecision | None:
        return PENDING if (namespace, name) == ("default", "web-1") else None

    def kept(self) -> list[KeptDecision]:
        return []


async def test_what_is_asked_and_printed(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    server.components.set_scheduler(Known())
    assert await reasoning.show(there, "pod/web-1", False) == 0
    assert "refused by NodeResourcesFit" in capsys.readouterr().out
    await reasoning.show(there, "web-1", True)
    printed: Any = json.loads(capsys.readouterr().out)
    assert printed["nodes"][0]["reasons"] == ["Insufficient cpu"]
    with pytest.raises(Failure, match="chooses nodes for pods"):
        await reasoning.show(there, "deploy/web", False)


async def test_the_claims_of_the_pod_are_told(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    server.components.set_scheduler(Known())
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    await server.post(
        "/api/v1/namespaces/default/pods", {"metadata": {"name": "web-1"}, "spec": spec}
    )
    assert await reasoning.show(there, "web-1", False) == 0
    assert capsys.readouterr().out.endswith(
        """
CLAIM   PHASE     VOLUME   NODES    WAITS FOR
data    Missing   <none>   <none>   the claim does not exist
"""
    )


async def test_a_pod_that_is_missing_or_was_never_decided_is_told(
    server: LocalServer, there: ApiSession
) -> None:
    server.components.set_scheduler(Known())
    with pytest.raises(StatusError, match='pods "web" not found'):
        await reasoning.show(there, "web", as_json=False)
    container = {"name": "main", "image": "host"}
    spec = {"containers": [container], "nodeName": "node-1"}
    await server.post(
        "/api/v1/namespaces/default/pods", {"metadata": {"name": "web"}, "spec": spec}
    )
    with pytest.raises(Failure, match=r'created for node "node-1".*kedge doctor web -n default'):
        await reasoning.show(there, "web", as_json=False)


async def test_a_server_whose_scheduler_is_not_kedges_is_told_apart(there: ApiSession) -> None:
    class ForeignAnswer:
        content_type = "application/json"
        headers: ClassVar[list[tuple[str, str]]] = []

        def __init__(self, path: str) -> None:
            is_pod = path.startswith("/api/v1/")
            self.status = 200 if is_pod else 404
            self.body: Body = b'{"spec":{"nodeName":"n"}}' if is_pod else b"404 page not found\n"

    client = Client(LocalTransport(lambda call: ForeignAnswer(call.path)))
    with pytest.raises(Failure, match=r"its scheduler is not kedge's: 'kedge events --for pod/w"):
        await reasoning.show(replace(there, client=client), "web-0", as_json=False)
