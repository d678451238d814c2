"""PodDisruptionBudget: how many pods of a set may be down at once on purpose."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import field

from kedge.api import rules
from kedge.api.apps_v1 import rolling
from kedge.api.conditions import validate_conditions
from kedge.api.label_selector import validate_label_selector
from kedge.api.model import (
    Condition,
    Int32,
    IntOrString,
    LabelSelector,
    Model,
    Object,
    Time,
    keyed,
)
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


class PodDisruptionBudgetSpec(Model):
    """Which pods are protected, and how."""

    maxUnavailable: IntOrString | None = None
    """How many may be down, as a number or a percentage. Not together with minAvailable."""
    minAvailable: IntOrString | None = None
    """How many must stay, as a number or a percentage. Not together with maxUnavailable."""
    selector: LabelSelector | None = None
    """The pods; an empty selector means all of the namespace, none means none."""
    unhealthyPodEvictionPolicy: str | None = None
    """Whether running pods that are not ready may go in any case: AlwaysAllow, IfHealthyBudget."""


class PodDisruptionBudgetStatus(Model):
    """How many disruptions are left."""

    conditions: Annotated[Sequence[Condition], keyed("type")] = ()
    """Aspects of its state."""
    currentHealthy: Int32 = field(default_factory=int)
    """How many pods are healthy."""
    desiredHealthy: Int32 = field(default_factory=int)
    """How many must be healthy."""
    disruptedPods: Mapping[str, Time] = {}
    """Pods whose eviction was allowed and is not seen, and when."""
    disruptionsAllowed: Int32 = field(default_factory=int)
    """How many more may go now."""
    expectedPods: Int32 = field(default_factory=int)
    """How many pods there are."""
    observedGeneration: int = 0
    """The generation that this status is about."""


class PodDisruptionBudget(Object):
    """How many pods of a set may be down at once on purpose."""

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    """The desired state."""
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)
    """The observed state."""


def validate(obj: PodDisruptionBudget) -> Iterator[FieldError]:
    spec = obj.spec
    if spec.minAvailable is not None and spec.maxUnavailable is not None:
        why = "minAvailable and maxUnavailable cannot be both set"
        yield FieldError.invalid("spec", spec, why)
    for name in ("minAvailable", "maxUnavailable"):
        if (value := getattr(spec, name)) is not None:
            yield from _number_or_percent(value, f"spec.{name}")
    yield from validate_label_selector(spec.selector, "spec.selector")
    yield from rules.none_or_one_of(
        "spec.unhealthyPodEvictionPolicy", spec.unhealthyPodEvictionPolicy, EVICTION_POLICIES
    )


def _number_or_percent(value: int | str, path: str) -> Iterator[FieldError]:
    if isinstance(value, int):
        yield from rules.nonnegative(path, value)
    elif found := names.percent(value):
        yield from rules.problems(path, value, found)
    elif rolling.percentage(value) > 100:
        yield FieldError.invalid(path, value, "must not be greater than 100%")


def validate_status(new: PodDisruptionBudget, old: PodDisruptionBudget) -> Iterator[FieldError]:
    yield from validate_conditions("status.conditions", new.status.conditions)
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        yield from rules.nonnegative(f"status.{name}", getattr(new.status, name))


def _or_not_applicable(value: int | str | None) -> str:
    return "N/A" if value is None else str(value)


RESOURCE: Resource[PodDisruptionBudget] = Resource(
    type=PodDisruptionBudget,
    group="policy",
    plural="poddisruptionbudgets",
    subresources=[STATUS],
    strategy=Strategy(
        allows_unconditional_update=False,
        validate=validate,
        validate_status=validate_status,
    ),
    presentation=Presentation(
        short_names=["pdb"],
        columns=[
            name_column(),
            Column(
                name="Min Available",
                cell=lambda obj: _or_not_applicable(obj.spec.minAvailable),
                description="How many pods must stay.",
            ),
            Column(
                name="Max Unavailable",
                cell=lambda obj: _or_not_applicable(obj.spec.maxUnavailable),
                description="How many pods may be down.",
            ),
            Column(
                name="Allowed Disruptions",
                type="integer",
                cell=lambda obj: obj.status.disruptionsAllowed,
                description="How many more may go now.",
            ),
            age_column(),
        ],
    ),
)
