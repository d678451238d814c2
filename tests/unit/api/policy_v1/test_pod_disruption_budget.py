import pytest
from msgspec.structs import replace

from kedge.api.model import Condition
from kedge.api.policy_v1.pod_disruption_budget import (
    RESOURCE,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)


def errors(**spec: int | str) -> list[str]:
    wanted = replace(PodDisruptionBudgetSpec(), **spec)
    return [str(error) for error in RESOURCE.strategy.validate(PodDisruptionBudget(spec=wanted))]


@pytest.mark.parametrize("amount", [0, 3, "0%", "100%"])
def test_numbers_and_percentages_will_do(amount: int | str) -> None:
    assert errors(minAvailable=amount) == []


@pytest.mark.parametrize(
    ("amount", "why"),
    [
        (-1, "must be greater than or equal to 0"),
        ("101%", "must not be greater than 100%"),
    ],
)
def test_amounts_nobody_can_keep_are_refused(amount: int | str, why: str) -> None:
    (error,) = errors(maxUnavailable=amount)
    assert error.startswith("spec.maxUnavailable: Invalid value: ")
    assert error.endswith(why)


def test_one_bound_is_enough() -> None:
    (error,) = errors(minAvailable=1, maxUnavailable=1)
    assert error == (
        'spec: Invalid value: {"maxUnavailable":1,"minAvailable":1}: '
        "minAvailable and maxUnavailable cannot be both set"
    )


def test_counts_are_written_even_when_zero() -> None:
    assert RESOURCE.to_document(PodDisruptionBudget())["status"] == {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    }


def test_conditions_in_the_status_are_checked() -> None:
    good = Condition(
        type="DisruptionAllowed",
        status="True",
        reason="SufficientPods",
        lastTransitionTime="2026-01-01T00:00:00Z",
    )
    bad = replace(good, status="Maybe", reason="two words", lastTransitionTime="")
    status = PodDisruptionBudgetStatus(conditions=[good, bad], expectedPods=-1)
    obj = PodDisruptionBudget(status=status)
    assert [error.field for error in RESOURCE.strategy.validate_status(obj, obj)] == [
        "status.conditions[1].type",
        "status.conditions[1].status",
        "status.conditions[1].lastTransitionTime",
        "status.conditions[1].reason",
        "status.expectedPods",
    ]


def test_the_columns_show_the_bound_that_is_set() -> None:
    obj = PodDisruptionBudget(spec=PodDisruptionBudgetSpec(minAvailable="50%"))
    row = {column.name: column.cell(obj) for column in RESOURCE.presentation.columns}
    assert (row["Min Available"], row["Max Unavailable"]) == ("50%", "N/A")
