from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.limit_range import RESOURCE, LimitRange, LimitRangeItem, LimitRangeSpec
from kedge.machinery.quantity import Quantity
from kedge.testing.pods import without_nothing

CASES = yaml.safe_load(Path(__file__).with_name("limit_range.yaml").read_text())


def amounts(**given_: str) -> dict[str, Quantity]:
    return {name.replace("_", "/"): Quantity.parse(text) for name, text in given_.items()}


def of(*items: LimitRangeItem) -> LimitRange:
    return LimitRange(spec=LimitRangeSpec(limits=list(items)))


def errors(obj: LimitRange) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def written(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items with every amount as text, which is how they are served."""

    def text(value: Any) -> Any:
        return {k: str(v) for k, v in value.items()} if isinstance(value, dict) else value

    return [{key: text(value) for key, value in item.items()} for item in items]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_items_are_completed_and_judged_as_in_kubernetes(case: dict[str, Any]) -> None:
    document = {"metadata": {"name": "x"}, "spec": {"limits": case["items"]}}
    obj = RESOURCE.strategy.default(RESOURCE.from_document(without_nothing(document)))
    assert errors(obj) == case.get("errors", [])
    if "stored" in case:
        stored = RESOURCE.to_document(obj)["spec"].get("limits", [])
        assert stored == written(case["stored"])


def test_container_defaults_fall_from_maximum_to_limit_to_request() -> None:
    obj = of(
        LimitRangeItem(
            type="Container",
            max=amounts(cpu="2", memory="1Gi"),
            min=amounts(cpu="100m", storage="1"),
            default=amounts(memory="512Mi"),
        ),
        LimitRangeItem(type="Pod", max=amounts(cpu="4")),
    )
    container, pod = RESOURCE.strategy.default(obj).spec.limits
    assert container.default == amounts(cpu="2", memory="512Mi")
    assert container.defaultRequest == amounts(cpu="2", memory="512Mi", storage="1")
    assert pod.default == {}


def test_bounds_must_not_contradict_each_other() -> None:
    item = LimitRangeItem(
        type="Container",
        min=amounts(cpu="2"),
        max=amounts(cpu="1"),
        default=amounts(cpu="500m"),
        defaultRequest=amounts(cpu="600m"),
    )
    assert errors(of(item)) == [
        'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        'spec.limits[0].defaultRequest[cpu]: Invalid value: "600m": '
        "min value 2 is greater than default request value 600m",
        'spec.limits[0].defaultRequest[cpu]: Invalid value: "600m": '
        "default request value 600m is greater than default limit value 500m",
        'spec.limits[0].default[cpu]: Invalid value: "2": '
        "min value 2 is greater than default value 500m",
    ]


def test_claims_are_bounded_in_storage_and_each_type_once() -> None:
    item = LimitRangeItem(type="PersistentVolumeClaim", max=amounts(storage="1Gi"))
    assert errors(of(item)) == []
    assert errors(of(item, LimitRangeItem(type="PersistentVolumeClaim"))) == [
        'spec.limits[1].type: Duplicate value: "PersistentVolumeClaim"',
        "spec.limits[1].limits: Required value: "
        "either minimum or maximum storage value is required, but neither was provided",
    ]


CPU = st.integers(0, 8).map(lambda n: {"cpu": Quantity.from_value(n)} if n else {})


@given(CPU, CPU, CPU, CPU)
def test_defaulting_again_changes_nothing(
    least: dict[str, Quantity],
    most: dict[str, Quantity],
    limit: dict[str, Quantity],
    request: dict[str, Quantity],
) -> None:
    item = LimitRangeItem(
        type="Container", min=least, max=most, default=limit, defaultRequest=request
    )
    once = RESOURCE.strategy.default(of(item))
    assert RESOURCE.strategy.default(once) == once
