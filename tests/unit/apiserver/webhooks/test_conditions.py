"""matchConditions: who decides when several conditions disagree or fail."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.apiserver.webhooks.conditions import Conditions
from kedge.machinery.cel import CelError

PUBLISHED = yaml.safe_load(Path(__file__).with_name("published_conditions.yaml").read_text())
VALUES = {
    "object": {"metadata": {"name": "a"}, "spec": {"replicas": 3}},
    "oldObject": None,
    "request": {"operation": "CREATE", "userInfo": {"groups": ["system:nodes"]}},
}
TRUE = "object.spec.replicas == 3"
FALSE = "request.userInfo.groups.exists(g, g == 'system:masters')"
ERROR = "object.spec.missing == 1"


async def test_all_conditions_must_hold() -> None:
    assert await Conditions([TRUE, "oldObject == null"]).hold(VALUES)
    assert not await Conditions([TRUE, FALSE]).hold(VALUES)


@pytest.mark.parametrize("case", PUBLISHED["requests"], ids=lambda case: case["case"])
async def test_published_conditions(case: dict[str, Any]) -> None:
    request = {"resource": case["resource"], "userInfo": {"groups": case["groups"]}}
    values = {"object": {}, "oldObject": None, "request": request}
    assert await Conditions(PUBLISHED["conditions"]).hold(values) is case["reaches"]


@pytest.mark.parametrize("order", [[ERROR, FALSE], [FALSE, ERROR]])
async def test_one_that_is_false_decides_whatever_the_others_do(order: list[str]) -> None:
    assert not await Conditions(order).hold(VALUES)


async def test_without_a_false_one_every_error_is_told() -> None:
    with pytest.raises(CelError) as error:
        await Conditions([TRUE, ERROR, "nobody == 1"]).hold(VALUES)
    assert str(error.value).startswith("[expression 'object.spec.missing == 1' resulted in error:")
    assert "undeclared reference to 'nobody'" in str(error.value)


async def test_conditions_that_older_releases_accepted_still_decide() -> None:
    values = {**VALUES, "object": {"on": True, "off": False, "name": "a"}}
    assert await Conditions(["object.on", "cel.bind(o, object, o.name == 'a')"]).hold(values)
    assert not await Conditions(["object.off"]).hold(values)
    with pytest.raises(CelError, match="no such overload"):
        await Conditions(["object.name"]).hold(values)


async def test_the_event_loop_waits_for_all_conditions_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[Any] = []

    async def in_thread(hold: Any, values: Any) -> bool:
        threads.append(values)
        return bool(hold(values))

    monkeypatch.setattr("asyncio.to_thread", in_thread)
    values = {**VALUES, "object": {"items": list(range(3000))}}
    long = "object.items.all(i, i >= 0)"
    assert await Conditions([long]).hold(values)
    assert threads == []
    assert await Conditions([long] * 10).hold(values)
    assert threads == [values]


async def test_long_conditions_are_compiled_in_a_thread_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[Any] = []

    async def in_thread(hold: Any, values: Any) -> bool:
        threads.append(values)
        return bool(hold(values))

    monkeypatch.setattr("asyncio.to_thread", in_thread)
    made = Conditions([f"{TRUE} || '{'x' * 5_000}' == ''"])
    assert await made.hold(VALUES)
    assert threads == [VALUES]
    assert await made.hold(VALUES)
    assert threads == [VALUES]
