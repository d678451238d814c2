"""The objects that the cluster needs: those that kedge accepts itself are valid there too."""

import re
from typing import Any

import pytest

from kedge.admission_webhook import manifests
from kedge.admission_webhook.manifests import ClusterPlacement
from kedge.api.catalog import BUILT_IN
from kedge.api.core_v1.limit_range import LimitRangeItem, LimitRangeSelector
from kedge.machinery.quantity import Quantity

OUTSIDE = manifests.outside("https://127.0.0.1:9443/", b"PEM")
INSIDE = manifests.inside(ClusterPlacement("kedge:1", b"CERT", b"KEY"), b"PEM")


def webhooks(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for found in documents for each in found.get("webhooks", ())}


@pytest.mark.parametrize("documents", [OUTSIDE, INSIDE])
def test_they_are_valid(documents: list[dict[str, Any]]) -> None:
    known = {(each.api_version, each.kind): each for each in BUILT_IN}
    for document in documents:
        resource = known[document["apiVersion"], document["kind"]]
        obj = resource.from_document(document)
        strategy = resource.strategy
        assert list(strategy.validate(strategy.default(obj))) == [], document["kind"]


def test_the_schema_has_the_fields_of_kedge_s_own_kind() -> None:
    version = manifests.definition()["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    item = spec["properties"]["limits"]["items"]["properties"]
    assert set(item) == set(LimitRangeItem.__struct_fields__)
    assert set(item["selector"]["properties"]) == set(LimitRangeSelector.__struct_fields__)


AMOUNTS = ["1", "+1", "-1", "1.", ".5", "1.5Ki", "100m", "1n", "3k", "1E", "1E5", "1e-3", "7Ei"]
OTHER_TEXTS = ["", "..", "1.2.3", "1ee", "1e", "5e-", "1ki", "0x1", "1 ", "1mm", "1K"]


@pytest.mark.parametrize("text", [*AMOUNTS, *OTHER_TEXTS])
def test_the_schema_takes_the_amounts_that_the_webhook_can_read(text: str) -> None:
    version = manifests.definition()["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    amounts = spec["properties"]["limits"]["items"]["properties"]["max"]
    pattern = amounts["additionalProperties"]["pattern"]
    assert bool(re.search(pattern, text)) is is_quantity(text)


def is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except ValueError:
        return False
    return True


def test_a_webhook_that_is_down_lets_no_pod_pass_outside_of_its_own_namespace() -> None:
    for found in (webhooks(OUTSIDE), webhooks(INSIDE)):
        policies = {name.partition(".")[0]: each["failurePolicy"] for name, each in found.items()}
        assert policies == {
            "pods": "Fail",
            "limits": "Fail",
            "limitranges": "Fail",
            "templates": "Ignore",
            "warnings": "Ignore",
        }
        selector = found["pods.webhook.kedge.dev"]["namespaceSelector"]
        assert selector["matchExpressions"][0]["values"] == ["kube-system"]
        assert {each["sideEffects"] for each in found.values()} == {"None"}


def test_the_place_of_the_webhook_is_named() -> None:
    outside = webhooks(OUTSIDE)["pods.webhook.kedge.dev"]["clientConfig"]
    assert outside == {"url": "https://127.0.0.1:9443/mutate", "caBundle": "UEVN"}
    inside = webhooks(INSIDE)["limits.webhook.kedge.dev"]["clientConfig"]
    assert inside["service"]["path"] == "/validate"
    assert inside["caBundle"] == "UEVN"
    unsigned = webhooks(manifests.outside("https://hooks.example", b""))
    assert "caBundle" not in unsigned["pods.webhook.kedge.dev"]["clientConfig"]
