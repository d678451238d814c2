"""Decisions of the scheduler, as kubectl and tenants of one namespace read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Kubectl

HUGE = {"resources": {"requests": {"cpu": "1000"}}}


def test_kubectl_reads_and_explains_decisions(kubectl: Kubectl, pods: Any, eventually: Any) -> None:
    pods.create("huge", container=HUGE)
    pods.create("one")
    node = pods.ready("one")["spec"]["nodeName"]
    where = f"-n {pods.namespace}"
    eventually(lambda: "huge" in kubectl.says(f"get schedulingdecisions {where}"))
    head, huge, one = kubectl.says(f"get schedulingdecisions {where}").splitlines()
    assert head.split() == ["NAME", "NODE", "VERDICT", "AGE", "MESSAGE"]
    assert huge.split()[:3] == ["huge", "<none>", "Unschedulable"]
    assert huge.endswith("Insufficient cpu.")
    assert one.split()[:3] == ["one", node, "Scheduled"]
    everywhere = kubectl.says(f"get schedulingdecisions -A --field-selector=node={node}")
    assert [pods.namespace, "one"] in [line.split()[:2] for line in everywhere.splitlines()]
    text = kubectl.says(f"get schedulingdecisions huge {where} -o yaml")
    assert "kind: SchedulingDecision" in text
    assert "filter: NodeResourcesFit" in text
    explained = kubectl.says("explain schedulingdecisions.nodes.reasons")
    assert "The reasons of that filter." in explained


def test_a_tenant_reads_the_decisions_of_its_namespace_only(
    kubectl: Kubectl, pods: Any, eventually: Any
) -> None:
    pods.create("one")
    pods.ready("one")
    where = f"-n {pods.namespace}"
    kubectl(f"create rolebinding reader --clusterrole=view --user=jane {where}")
    jane = "get schedulingdecisions --as=jane"
    eventually(lambda: "one" in kubectl(f"{jane} one {where}", check=False).stdout)
    assert "Forbidden" in kubectl.fails(f"{jane} -n kube-system")
    assert "Forbidden" in kubectl.fails(f"{jane} -A")
