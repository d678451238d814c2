"""What the server fills in."""

from typing import Any

from msgspec.structs import replace

from kedge.api.builtin import defaults
from kedge.api.builtin.resources import RESOURCES
from kedge.api.model import Document, ObjectMeta


def of(**content: Any) -> Document:
    return Document(content=content)


def test_storage_class_gets_policy_and_mode() -> None:
    filled = defaults.storage_class(of(provisioner="p", reclaimPolicy="Retain")).content
    assert filled == {
        "provisioner": "p",
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
    }


def test_network_policy_covers_egress_only_if_it_says_so() -> None:
    assert defaults.network_policy(of()).content["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress"],
    }
    egress = [{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 80}]}, {}]
    spec = defaults.network_policy(of(spec={"egress": egress})).content["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [port["protocol"] for port in spec["egress"][0]["ports"]] == ["UDP", "TCP"]
    assert spec["egress"][1] == {}


def test_volume_is_retained_and_pending() -> None:
    spec = {"hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Delete"}
    filled = defaults.persistent_volume(of(spec=spec)).content["spec"]
    assert filled == {
        "hostPath": {"path": "/x", "type": ""},
        "persistentVolumeReclaimPolicy": "Delete",
        "volumeMode": "Filesystem",
    }
    new = replace(of(), metadata=ObjectMeta(creationTimestamp="2030-01-01T00:00:00Z"))
    assert defaults.pending_volume(new).content["status"] == {
        "phase": "Pending",
        "lastPhaseTransitionTime": "2030-01-01T00:00:00Z",
    }


def test_webhooks_get_upstreams_caution() -> None:
    hook = {
        "name": "a.b.c",
        "rules": [{"operations": ["*"]}],
        "clientConfig": {"service": {"name": "s"}},
    }
    (filled,) = defaults.mutating_webhooks(of(webhooks=[hook])).content["webhooks"]
    assert filled == {
        "name": "a.b.c",
        "rules": [{"operations": ["*"], "scope": "*"}],
        "clientConfig": {"service": {"name": "s", "port": 443}},
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
    }
    assert defaults.validating_webhooks(of()).content == {}


def test_what_was_given_is_not_changed_in_place() -> None:
    given: dict[str, Any] = {
        "limited": {"limitResponse": {"queuing": {"queues": 1, "handSize": 0}}}
    }
    filled = defaults.priority_level(of(spec=given)).content["spec"]
    assert given == {"limited": {"limitResponse": {"queuing": {"queues": 1, "handSize": 0}}}}
    assert filled["limited"] == {
        "lendablePercent": 0,
        "nominalConcurrencyShares": 30,
        "limitResponse": {"queuing": {"queues": 1, "handSize": 8, "queueLengthLimit": 50}},
    }


def test_a_signing_request_stays_as_it_was_made() -> None:
    made = of(spec={"username": "jane", "signerName": "example.com/s"})
    changed = defaults.kept_signing_request(of(spec={"signerName": "other.com/s"}), made)
    assert changed.content == made.content


def test_policies_match_equivalent_requests() -> None:
    rules = [{"operations": ["CREATE"]}]
    spec = {"matchConstraints": {"resourceRules": rules}}
    filled = defaults.admission_policy(of(spec=spec)).content["spec"]
    assert filled == {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [{"operations": ["CREATE"], "scope": "*"}],
        },
    }


def test_cluster_is_the_scope_of_class_parameters() -> None:
    spec = {"controller": "a.io/b", "parameters": {"kind": "K", "name": "n"}}
    filled = defaults.ingress_class(of(spec=spec)).content["spec"]
    assert filled["parameters"] == {"kind": "K", "name": "n", "scope": "Cluster"}


def test_kinds_with_a_status_always_have_it() -> None:
    filled = {
        resource.kind: resource.strategy.default(of()).content["status"]
        for resource in RESOURCES
        if resource.has_status
    }
    assert filled.pop("Ingress") == {"loadBalancer": {}}
    assert filled.pop("VolumeAttachment") == {"attached": False}
    assert set(map(str, filled.values())) == {"{}"}


def test_reported_status_is_kept() -> None:
    (ingress,) = (resource for resource in RESOURCES if resource.kind == "Ingress")
    reported = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    assert ingress.strategy.default(of(status=reported)).content["status"] == reported
