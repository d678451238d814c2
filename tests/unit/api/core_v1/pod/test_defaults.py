"""Pods as they are stored: what is filled in, and how they begin."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.core_v1.pod.defaults import default, default_template
from kedge.api.core_v1.pod.pod import RESOURCE
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.testing.pods import new_pod, pod_document

CASES = yaml.safe_load(Path(__file__).with_name("defaults.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_pod_is_stored_as_kubernetes_stores_it(case: dict[str, Any]) -> None:
    pod = new_pod(**{name: case.get(name) for name in ("metadata", "spec", "container")})
    document = RESOURCE.to_document(pod)
    assert {"spec": document["spec"], "status": document["status"]} == case["expected"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_filling_in_twice_changes_nothing(case: dict[str, Any]) -> None:
    pod = new_pod(**{name: case.get(name) for name in ("metadata", "spec", "container")})
    assert RESOURCE.to_document(default(pod)) == RESOURCE.to_document(pod)


def test_a_pod_held_back_says_so_from_the_start() -> None:
    born = "2026-01-01T00:00:00Z"
    pod = new_pod(
        metadata={"creationTimestamp": born}, spec={"schedulingGates": [{"name": "wait"}]}
    )
    (condition,) = pod.status.conditions
    assert (condition.type, condition.status, condition.reason, condition.lastTransitionTime) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
        born,
    )


def test_templates_wait_with_what_only_pods_have() -> None:
    limits = {"resources": {"limits": {"cpu": "1"}}}
    document = pod_document(spec={"terminationGracePeriodSeconds": -1}, container=limits)
    spec = default_template(PodTemplateSpec(spec=RESOURCE.from_document(document).spec)).spec
    assert spec.enableServiceLinks is None
    assert spec.terminationGracePeriodSeconds == -1
    assert spec.containers[0].resources.requests == {}
    assert spec.containers[0].terminationMessagePolicy == "File"


def test_one_address_and_the_list_of_addresses_agree() -> None:
    status = {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]}
    pod = default(RESOURCE.from_document(pod_document() | {"status": status}))
    assert [address.ip for address in pod.status.podIPs] == ["10.0.0.1"]
    status = {"podIPs": [{"ip": "10.0.0.2"}]}
    pod = default(RESOURCE.from_document(pod_document() | {"status": status}))
    assert pod.status.podIP == "10.0.0.2"
