"""`kubectl explain`, of built-in kinds and of custom ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

PARTS = [
    ("pods", "KIND:       Pod\nVERSION:    v1\n"),
    ("deployments", "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n"),
    ("limitranges", "KIND:       LimitRange\nVERSION:    v1\n"),
    ("crd", "GROUP:      apiextensions.k8s.io\nKIND:       CustomResourceDefinition\n"),
    ("ingresses.spec", "GROUP:      networking.k8s.io\nKIND:       Ingress\nVERSION:    v1\n"),
]


@pytest.mark.parametrize(("what", "heading"), PARTS, ids=[part[0] for part in PARTS])
def test_a_kind(any_kubectl: Kubectl, what: str, heading: str) -> None:
    text = any_kubectl("explain", what).stdout
    assert text.startswith(heading)
    assert "\nDESCRIPTION:\n" in text
    assert "\nFIELDS:\n" in text


def test_a_field_says_what_it_is_and_what_it_is_for(kubectl: Kubectl) -> None:
    text = kubectl("explain pod.spec.containers.image").stdout
    assert "FIELD: image <string>\n" in text
    description = text.partition("DESCRIPTION:\n")[2].strip()
    assert len(description) > 10
    assert "<empty>" not in description
    text = kubectl("explain pod.spec").stdout
    assert re.search(r"^  containers\t<\[\]Container> -required-$", text, re.MULTILINE)
    assert re.search(r"^  nodeSelector\t<map\[string\]string>$", text, re.MULTILINE)
    assert re.search(r"^  terminationGracePeriodSeconds\t<integer>$", text, re.MULTILINE)


def test_recursively(kubectl: Kubectl) -> None:
    lines = kubectl("explain deployment --recursive").stdout.splitlines()
    depth = {line.split("\t")[0].strip(): line for line in lines if "\t" in line}
    assert depth["rollingUpdate"] == "      rollingUpdate\t<RollingUpdateDeployment>"
    assert depth["maxSurge"] == "        maxSurge\t<IntOrString>"


def test_another_version(kubectl: Kubectl) -> None:
    text = kubectl("explain hpa.spec --api-version=autoscaling/v1").stdout
    assert "targetCPUUtilizationPercentage\t<integer>" in text
    assert "metrics\t<[]MetricSpec>" in kubectl("explain hpa.spec").stdout


def test_what_is_not_there(kubectl: Kubectl) -> None:
    assert 'field "nonsense" does not exist' in kubectl.fails("explain pod.spec.nonsense")
    refused = kubectl.fails("explain unicorns")
    assert 'the server doesn\'t have a resource type "unicorns"' in refused


def test_every_kind_that_is_listed_can_be_explained(api: Api) -> None:
    """Asks the documents that `explain` reads, and each for what it looks up."""
    missing = []
    for path in api.get("/openapi/v3")["paths"]:
        if not re.fullmatch(r"api/v1|apis/[^/]+/v\w+", path) or ".example.com/" in path:
            continue
        schemas = api.get(f"/openapi/v3/{path}").get("components", {}).get("schemas", {})
        kinds = {
            gvk["kind"]
            for schema in schemas.values()
            for gvk in schema.get("x-kubernetes-group-version-kind", ())
        }
        for resource in api.get(f"/{path}")["resources"]:
            if "/" not in resource["name"] and resource["kind"] not in kinds:
                missing.append(f"{path}/{resource['name']}")
    assert missing == []
