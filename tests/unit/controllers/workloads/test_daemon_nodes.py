"""Which nodes a DaemonSet is for."""

from typing import Any

import pytest

from kedge.api.apps_v1.daemon_set import RESOURCE, DaemonSet
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.controllers.workloads.daemon_nodes import Eligibility, daemon_pod, is_updated, node_of


def daemon_set(generation: str = "3", **spec: Any) -> DaemonSet:
    annotations = {"deprecated.daemonset.template.generation": generation}
    meta = {"name": "agent", "uid": "u", "annotations": annotations}
    template = {"spec": {"containers": [{"name": "c"}], **spec}}
    return RESOURCE.from_document({"metadata": meta, "spec": {"template": template}})


def node(*taints: tuple[str, str], **labels: str) -> Node:
    spec = {"taints": [{"key": key, "effect": effect} for key, effect in taints]}
    return NODES.from_document({"metadata": {"name": "n", "labels": labels}, "spec": spec})


@pytest.mark.parametrize(
    ("taint", "wanted", "kept"),
    [
        (("node.kubernetes.io/not-ready", "NoExecute"), True, True),
        (("node.kubernetes.io/not-ready", "NoSchedule"), False, True),
        (("node.kubernetes.io/unschedulable", "NoSchedule"), True, True),
        (("node.kubernetes.io/network-unavailable", "NoSchedule"), False, True),
        (("mine", "NoSchedule"), False, True),
        (("mine", "NoExecute"), False, False),
        (("mine", "PreferNoSchedule"), True, True),
    ],
)
def test_taints_of_the_node_itself_are_put_up_with(
    taint: tuple[str, str], wanted: bool, kept: bool
) -> None:
    found = Eligibility(daemon_set())
    assert (found.wants(node(taint)), found.keeps(node(taint))) == (wanted, kept)


def required(**expression: Any) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_selector_affinity_and_name_must_all_fit() -> None:
    spec: dict[str, Any] = {
        "nodeSelector": {"disk": "ssd"},
        "affinity": required(key="zone", operator="In", values=["a", "b"]),
    }
    chosen = Eligibility(daemon_set(**spec))
    assert chosen.wants(node(disk="ssd", zone="b"))
    assert not chosen.keeps(node(disk="ssd", zone="c"))
    assert not chosen.keeps(node(zone="b"))
    assert not Eligibility(daemon_set(nodeName="other")).keeps(node())


def test_a_pod_keeps_its_wishes_but_is_for_one_node() -> None:
    affinity = required(key="zone", operator="Exists")
    wish = {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}
    affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = [wish]
    pod = daemon_pod(daemon_set(affinity=affinity), "hash", "n7")
    assert node_of(pod) == "n7"
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.nodeAffinity is not None
    nodes = pod.spec.affinity.nodeAffinity
    assert len(nodes.preferredDuringSchedulingIgnoredDuringExecution) == 1
    terms = nodes.requiredDuringSchedulingIgnoredDuringExecution
    assert terms is not None
    assert [term.matchExpressions for term in terms.nodeSelectorTerms] == [()]


def test_a_toleration_for_some_time_becomes_one_for_ever() -> None:
    brief = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    own = {"key": "mine", "operator": "Exists"}
    pod = daemon_pod(daemon_set(tolerations=[brief, own]), "hash", "n")
    found = [each for each in pod.spec.tolerations if each.key == brief["key"]]
    assert [each.tolerationSeconds for each in found] == [None]
    assert pod.spec.tolerations[0].key == "mine"


def test_a_pod_is_up_to_date_by_its_hash_or_by_the_generation_of_its_template() -> None:
    def labelled(**labels: str) -> Any:
        named = {key.replace("_", "-"): value for key, value in labels.items()}
        return PODS.from_document({"metadata": {"name": "p", "labels": named}})

    owner = daemon_set("3")
    assert is_updated(owner, "h", labelled(controller_revision_hash="h"))
    assert is_updated(owner, "h", labelled(pod_template_generation="3"))
    assert not is_updated(owner, "h", labelled(pod_template_generation="2"))
    assert not is_updated(daemon_set("odd"), "h", labelled(pod_template_generation="odd"))
