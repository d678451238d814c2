"""Validation and compilation of LabelSelector objects."""

from collections.abc import Iterator, Mapping

from kedge.api import rules
from kedge.api.metadata import validate_labels
from kedge.api.model import LabelSelector, LabelSelectorRequirement
from kedge.machinery import names, selectors
from kedge.machinery.errors import FieldError

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def validate_label_selector(selector: LabelSelector | None, path: str) -> Iterator[FieldError]:
    """Everything wrong with a selector; none at all is fine."""
    if selector is None:
        return
    if selector.matchLabels:
        yield from validate_labels(selector.matchLabels, f"{path}.matchLabels")
    for i, requirement in enumerate(selector.matchExpressions):
        yield from _requirement(requirement, f"{path}.matchExpressions[{i}]")


def _requirement(requirement: LabelSelectorRequirement, path: str) -> Iterator[FieldError]:
    if requirement.operator in ("In", "NotIn"):
        if not requirement.values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            yield FieldError.required(f"{path}.values", why)
    elif requirement.operator in ("Exists", "DoesNotExist"):
        if requirement.values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield FieldError.forbidden(f"{path}.values", why)
    else:
        why = "not a valid selector operator"
        yield FieldError.invalid(f"{path}.operator", requirement.operator, why)
    yield from rules.problems(f"{path}.key", requirement.key, names.qualified_name(requirement.key))
    for i, value in enumerate(requirement.values):
        yield from rules.problems(f"{path}.values[{i}]", value, names.label_value(value))


def compiled(selector: LabelSelector | None) -> selectors.LabelRequirements:
    """A valid selector, ready to match many objects; none at all matches nothing."""
    if selector is None:
        return selectors.NOTHING
    equal = [selectors.Requirement(k, "=", (v,)) for k, v in selector.matchLabels.items()]
    others = [
        selectors.Requirement(each.key, _OPERATORS[each.operator], tuple(each.values))
        for each in selector.matchExpressions
    ]
    return selectors.LabelRequirements(equal + others)


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a valid selector selects an object with these labels."""
    return compiled(selector).matches(labels)


def shown_labels(labels: Mapping[str, str]) -> str:
    """A map of labels as `kubectl get` shows it."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or "<none>"
