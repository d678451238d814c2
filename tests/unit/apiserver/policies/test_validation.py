"""The decision of a policy about one request."""

from typing import Any

import pytest

from kedge.api.builtin.policy_programs import PolicyCompiler
from kedge.apiserver.policies import validation
from kedge.apiserver.policies.match_resources import match_resources
from kedge.apiserver.policies.policy_set import BoundPolicy
from kedge.apiserver.policies.policy_variables import PolicyVariables
from kedge.apiserver.policies.validation import Denial, Judgement, ValidatingParts, judge

BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
LONG = "'a' + object.a + object.a + object.a"


def policy(*validations: dict[str, Any], ignore: bool = False) -> BoundPolicy[ValidatingParts]:
    spec: dict[str, Any] = {"validations": validations}
    return BoundPolicy(
        name="p",
        constraints=match_resources(None),
        conditions=None,
        ignores_failure=ignore,
        is_reinvoked=False,
        param_kind=None,
        variables={},
        parts=validation.validating_parts(spec, PolicyCompiler(spec)),
        bindings=(),
    )


def judged(policy: BoundPolicy[ValidatingParts]) -> Judgement:
    values: dict[str, Any] = {"object": {"a": "x" * 100}, "oldObject": None, "request": {}}
    values["variables"] = PolicyVariables({}, values)
    return judge(policy, values)


REFUSED = {"expression": "object.a == ''", "message": "one", "messageExpression": LONG}
HELD = {"expression": "object.a != ''", "messageExpression": LONG}


def test_messages_that_exceed_the_budget_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "POLICY_LIMIT", 40)
    failure = f"failed messageExpression: {BUDGET}"
    assert judged(policy(REFUSED, HELD)).denials == (Denial(failure), Denial(failure, place=1))
    assert judged(policy(HELD)).denials == (Denial(failure),)


def test_the_failure_policy_is_obeyed_for_messages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "POLICY_LIMIT", 40)
    assert judged(policy(REFUSED, HELD, ignore=True)) == Judgement()


def test_a_message_within_the_budget_is_shown() -> None:
    assert judged(policy(REFUSED, HELD)).denials == (Denial("a" + "x" * 300),)


def test_validations_that_exceed_the_budget_fail_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "POLICY_LIMIT", 0)
    assert judged(policy(REFUSED)).denials == (Denial(BUDGET),)
