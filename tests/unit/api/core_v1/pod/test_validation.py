"""Answers to pods that break rules, and to templates that do."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kedge.api.core_v1.pod.defaults import default_template
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.pod.validation import validate, validate_new, validate_template
from kedge.api.resource import dec_hook
from kedge.testing.pods import new_pod, pod_document

CASES = yaml.safe_load(Path(__file__).with_name("validation.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_every_error_is_told_at_once_as_kubernetes_tells_it(case: dict[str, Any]) -> None:
    pod = new_pod(**{name: case.get(name) for name in ("metadata", "spec", "container")})
    assert [str(error) for error in (*validate(pod), *validate_new(pod))] == case["errors"]


def test_a_pod_in_order_has_no_errors() -> None:
    assert list(validate(new_pod())) == []


def errors_of_template(document: dict[str, Any]) -> list[str]:
    template = msgspec.convert(document, PodTemplateSpec, dec_hook=dec_hook)
    return [str(e) for e in validate_template(default_template(template), "spec.template")]


def test_errors_of_a_template_are_told_from_its_owner() -> None:
    template = {
        "metadata": {"labels": {"a b": "c"}},
        "spec": {"containers": [{"name": "A", "image": " i"}], "dnsPolicy": "Odd"},
    }
    assert [error.split(": ")[0] for error in errors_of_template(template)] == [
        "spec.template.labels",
        "spec.template.spec.containers[0].name",
        "spec.template.spec.dnsPolicy",
    ]


def test_a_template_may_leave_ports_of_the_host_to_its_pods() -> None:
    port = {"containerPort": 80}
    spec = {"hostNetwork": True, "containers": [{"name": "a", "image": "i", "ports": [port]}]}
    assert errors_of_template({"spec": spec}) == []


def test_a_template_has_no_ephemeral_containers() -> None:
    spec = pod_document(spec={"ephemeralContainers": [{"name": "e", "image": "i"}]})["spec"]
    assert errors_of_template({"spec": spec}) == [
        "spec.template.spec.ephemeralContainers: Forbidden: "
        "ephemeral containers not allowed in pod template"
    ]
