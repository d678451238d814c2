import pytest

from kedge.api.label_selector import matches, shown_labels, validate_label_selector
from kedge.api.model import LabelSelector, LabelSelectorRequirement


def where(key: str, operator: str, *values: str) -> LabelSelector:
    requirement = LabelSelectorRequirement(key=key, operator=operator, values=values)
    return LabelSelector(matchExpressions=[requirement])


def errors(selector: LabelSelector | None) -> list[str]:
    return [str(error) for error in validate_label_selector(selector, "spec.selector")]


def test_no_selector_is_legal_and_selects_nothing() -> None:
    assert errors(None) == []
    assert not matches(None, {"a": "b"})


def test_an_empty_selector_selects_everything() -> None:
    assert errors(LabelSelector()) == []
    assert matches(LabelSelector(), {})


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (LabelSelector(matchLabels={"app": "web"}), True),
        (where("app", "NotIn", "web"), False),
        (where("tier", "DoesNotExist"), True),
        (where("tier", "NotIn", "x"), True),
        (where("tier", "Exists"), False),
    ],
)
def test_all_conditions_must_hold(selector: LabelSelector, selected: bool) -> None:
    assert errors(selector) == []
    assert matches(selector, {"app": "web"}) is selected


def test_operators_know_whether_they_take_values() -> None:
    at = "spec.selector.matchExpressions[0]"
    assert errors(where("a", "In")) == [
        f"{at}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
    ]
    assert errors(where("a", "Exists", "x")) == [
        f"{at}.values: Forbidden: "
        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
    ]
    assert errors(where("a", "Is", "x")) == [
        f'{at}.operator: Invalid value: "Is": not a valid selector operator'
    ]


def test_keys_and_values_are_labels() -> None:
    fields = [text.split(":")[0] for text in errors(where("-", "In", "ok", "not ok"))]
    at = "spec.selector.matchExpressions[0]"
    assert fields == [f"{at}.key", f"{at}.values[1]"]


def test_labels_are_shown_in_the_order_of_their_keys() -> None:
    assert shown_labels({"tier": "front", "app": "web"}) == "app=web,tier=front"
    assert shown_labels({}) == "<none>"
