"""Pods and sets find each other by anchors."""

from ipaddress import IPv4Address

from kedge.client.informer import Key
from kedge.machinery.selectors import EVERYTHING, LabelRequirements, Requirement, labels_from_map
from kedge.node.policies.compiled_policy import PeerGroup, PeerSelector
from kedge.node.policies.member_set import PeerAddresses, PeerPorts
from kedge.node.policies.policy_objects import PolicyPod
from kedge.node.policies.set_index import ANY, SetIndex, pod_anchors, set_anchors

POD = PolicyPod("x", "a", {"app": "1"}, IPv4Address("10.0.0.1"))
KEY = Key("x", "a")


def members(selector: PeerSelector) -> PeerAddresses:
    return PeerAddresses(PeerGroup((selector,), ()))


def test_the_most_specific_fact_anchors_a_selector() -> None:
    label = labels_from_map({"app": "1"})
    many = LabelRequirements([Requirement("app", "in", tuple(map(str, range(9))))])
    for selector, anchor in (
        (PeerSelector("x", None, label), ("label", "x", "app", "1")),
        (PeerSelector("", EVERYTHING, label), ("label", "", "app", "1")),
        (PeerSelector("x", None, EVERYTHING), ("namespace", "x")),
        (PeerSelector("", label, EVERYTHING), ("namespace label", "app", "1")),
        (PeerSelector("", EVERYTHING, many), ANY),
    ):
        assert set_anchors(members(selector)) == {anchor}
    assert set_anchors(PeerPorts(None, None)) == frozenset()


def test_a_pod_leads_to_sets_and_a_set_to_pods_until_they_go() -> None:
    index = SetIndex()
    anchors = set_anchors(members(PeerSelector("x", None, labels_from_map({"app": "1"}))))
    index.put_set("s", anchors)
    index.put_pod(KEY, pod_anchors(POD, {}))
    assert (index.sets_of(KEY), index.pods_of(anchors)) == ({"s"}, {KEY})
    index.put_pod(KEY, pod_anchors(POD._replace(labels={}), {}))
    assert (index.sets_of(KEY), index.pods_of(anchors)) == (set(), set())
    index.put_pod(KEY, pod_anchors(POD, {}))
    index.remove_set("s", anchors)
    assert index.sets_of(KEY) == set()
    index.remove_pod(KEY)
    assert index.pods_of(anchors) == set()
