"""What is refused in a webhook configuration, in upstream's words."""

from typing import Any

import pytest

from kedge.api.builtin import webhooks
from kedge.api.model import Document

GOOD: dict[str, Any] = {
    "name": "check.example.com",
    "clientConfig": {"service": {"namespace": "default", "name": "hook", "path": "/check"}},
    "rules": [
        {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "scope": "*",
        }
    ],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "timeoutSeconds": 10,
}


def said(*hooks: dict[str, Any]) -> list[str]:
    obj = Document(content={"webhooks": list(hooks)})
    return [str(error) for error in webhooks.validate(obj)]


def test_a_complete_webhook_is_fine() -> None:
    assert said(GOOD) == []


def test_an_empty_webhook_lacks_everything() -> None:
    assert said({}) == [
        "webhooks[0].name: Required value",
        "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
        "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
    ]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (
            {"name": "check"},
            'name: Invalid value: "check": '
            "should be a domain with at least three segments separated by dots",
        ),
        (
            {"sideEffects": "Some"},
            'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
        ),
        (
            {"timeoutSeconds": 31},
            "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            {"clientConfig": {"url": "http://example.com"}},
            'clientConfig.url: Invalid value: "http": '
            "'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            {"admissionReviewVersions": ["v2"]},
            'admissionReviewVersions: Invalid value: ["v2"]: '
            "must include at least one of v1, v1beta1",
        ),
    ],
)
def test_one_thing_wrong(changed: dict[str, Any], error: str) -> None:
    assert said({**GOOD, **changed}) == [f"webhooks[0].{error}"]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"operations": []}, "operations: Required value"),
        (
            {"operations": ["*", "CREATE"]},
            'operations: Invalid value: ["*","CREATE"]: '
            "if '*' is present, must not specify other operations",
        ),
        (
            {"resources": ["pods/*", "pods/log"]},
            'resources[1]: Invalid value: "pods/log": '
            "if 'pods/*' is present, must not specify pods/log",
        ),
        (
            {"resources": ["*", "pods"]},
            'resources: Invalid value: ["*","pods"]: '
            "if '*' is present, must not specify other resources without subresources",
        ),
    ],
)
def test_rules(changed: dict[str, Any], error: str) -> None:
    rule = {**GOOD["rules"][0], **changed}
    assert said({**GOOD, "rules": [rule]}) == [f"webhooks[0].rules[0].{error}"]


def test_names_are_told_apart() -> None:
    assert said(GOOD, GOOD) == ['webhooks[1].name: Duplicate value: "check.example.com"']


def conditional(expression: str, **changed: Any) -> Document:
    condition = {"name": "some", "expression": expression}
    return Document(content={"webhooks": [{**GOOD, "matchConditions": [condition], **changed}]})


@pytest.mark.parametrize("stored", ["object.a", "cel.bind(a, object, a.b == 1)"])
def test_stored_conditions_are_judged_only_if_one_changes(stored: str) -> None:
    old = conditional(stored)
    assert len(list(webhooks.validate(old))) == 1
    assert list(webhooks.validate_update(conditional(stored, timeoutSeconds=5), old)) == []
    (error,) = webhooks.validate_update(conditional("object.b"), old)
    assert error.field == "webhooks[0].matchConditions[0].expression"


def test_everything_else_is_judged_when_conditions_do_not_change() -> None:
    old = conditional("object.a")
    (error,) = webhooks.validate_update(conditional("object.a", timeoutSeconds=31), old)
    assert error.field == "webhooks[0].timeoutSeconds"
