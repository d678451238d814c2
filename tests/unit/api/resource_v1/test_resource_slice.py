from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.resource_v1 import sizes
from kedge.api.resource_v1.resource_slice import RESOURCE, ResourceSlice
from kedge.api.strategy import Strategy

CASES = yaml.safe_load(Path(__file__).with_name("slices.yaml").read_text())
STRATEGY: Strategy[ResourceSlice] = RESOURCE.strategy
POOL = {"name": "p", "resourceSliceCount": 1}


def published(**spec: Any) -> ResourceSlice:
    whole = {"driver": "d.example", "pool": POOL, "allNodes": True, **spec}
    return bare(**{name: value for name, value in whole.items() if value is not None})


def bare(**spec: Any) -> ResourceSlice:
    return STRATEGY.default(RESOURCE.from_document({"metadata": {"name": "x"}, "spec": spec}))


def errors(obj: ResourceSlice) -> list[str]:
    return [str(error) for error in STRATEGY.validate(obj)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_slices_are_validated_as_kubernetes_does(case: dict[str, Any]) -> None:
    obj = bare(**case["bare"]) if "bare" in case else published(**case["spec"])
    assert errors(obj) == case["errors"]


def test_a_slice_has_128_devices_or_64_with_taints_or_counters() -> None:
    devices = [{"name": f"d{i}"} for i in range(sizes.DEVICES)]
    assert errors(published(devices=devices)) == []
    tainted = [{**devices[0], "taints": [{"key": "k", "effect": "None"}]}, *devices[1:]]
    assert errors(published(devices=tainted)) == [
        "spec.devices: Too many: 128: must have at most 64 items"
    ]


def test_driver_pool_and_node_cannot_be_changed() -> None:
    old = published(allNodes=None, nodeName="n")
    new = published(allNodes=None, nodeName="m", driver="e.example", pool={**POOL, "name": "q"})
    assert [str(error) for error in STRATEGY.validate_update(new, old)] == [
        'spec.pool.name: Invalid value: "q": field is immutable',
        'spec.driver: Invalid value: "e.example": field is immutable',
        'spec.nodeName: Invalid value: "m": field is immutable',
    ]


def test_fields_behind_disabled_gates_are_dropped() -> None:
    device = {
        "name": "a",
        "attributes": {"links": {"ints": [1, 2]}, "one": {"int": 1}},
        "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}},
    }
    shown = RESOURCE.to_document(published(devices=[device]))["spec"]["devices"]
    assert shown == [{"name": "a", "attributes": {"links": {}, "one": {"int": 1}}}]


def test_a_driver_with_capitals_gets_a_warning() -> None:
    assert list(STRATEGY.warnings(published(driver="D.example"))) == [
        'spec.driver: driver names should be lowercase; "D.example" contains uppercase characters'
    ]


def test_slices_are_selected_by_node_and_driver() -> None:
    fields = RESOURCE.presentation.fields
    obj = published(allNodes=None, nodeName="n")
    assert {name: value(obj) for name, value in fields.items()} == {
        "spec.nodeName": "n",
        "spec.driver": "d.example",
    }
