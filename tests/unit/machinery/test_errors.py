"""Errors as clients see them."""

import pytest

from kedge.machinery import errors
from kedge.machinery.errors import FieldError, StatusCause, StatusError, from_status
from kedge.machinery.quantity import Quantity


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (FieldError.required("a"), "FieldValueRequired", "a: Required value"),
        (FieldError.required("a", "why"), "FieldValueRequired", "a: Required value: why"),
        (
            FieldError.invalid("a", "x", "must be y"),
            "FieldValueInvalid",
            'a: Invalid value: "x": must be y',
        ),
        (
            FieldError.invalid("a", Quantity.of("1Gi"), "too much"),
            "FieldValueInvalid",
            'a: Invalid value: "1Gi": too much',
        ),
        (
            FieldError.invalid("a", {"b": [1, None]}, "no"),
            "FieldValueInvalid",
            'a: Invalid value: {"b":[1,null]}: no',
        ),
        (
            FieldError.not_supported("a", "x", ["A", "B"]),
            "FieldValueNotSupported",
            'a: Unsupported value: "x": supported values: "A", "B"',
        ),
        (FieldError.forbidden("a", "no"), "FieldValueForbidden", "a: Forbidden: no"),
        (FieldError.duplicate("a", 1), "FieldValueDuplicate", "a: Duplicate value: 1"),
        (FieldError.not_found("a", "x"), "FieldValueNotFound", 'a: Not found: "x"'),
        (
            FieldError.too_long("a", 5),
            "FieldValueTooLong",
            "a: Too long: may not be more than 5 bytes",
        ),
        (
            FieldError.too_many("a", 3, 1),
            "FieldValueTooMany",
            "a: Too many: 3: must have at most 1 item",
        ),
    ],
)
def test_field_errors_are_worded_as_kubernetes_words_them(
    error: FieldError, reason: str, text: str
) -> None:
    assert (error.reason, str(error)) == (reason, text)


def test_a_field_error_can_be_seen_from_further_out() -> None:
    assert str(FieldError.required("b").under("a")) == "a.b: Required value"
    assert str(FieldError.required("[0].b").under("a")) == "a[0].b: Required value"


def test_an_invalid_object_lists_every_broken_rule_once() -> None:
    one, two = FieldError.required("spec.a"), FieldError.forbidden("spec.b", "no")
    single = errors.invalid("apps", "Deployment", "d", [one]).status()
    assert single["message"] == 'Deployment.apps "d" is invalid: spec.a: Required value'
    assert single["details"] == {
        "name": "d",
        "group": "apps",
        "kind": "Deployment",
        "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"}
        ],
    }
    several = errors.invalid("", "Pod", "p", [one, two, one]).status()
    assert several["message"] == (
        'Pod "p" is invalid: [spec.a: Required value, spec.b: Forbidden: no]'
    )


def test_a_retry_is_asked_for_in_the_details() -> None:
    status = errors.timeout("slow", retry_after=3).status()
    assert status["details"] == {"retryAfterSeconds": 3}


@pytest.mark.parametrize(
    "error",
    [
        errors.not_found("apps", "deployments", "d"),
        errors.unknown_resource(),
        errors.conflict("", "pods", "p", "why", [StatusCause("R", "m", "f")]),
        errors.expired("old", "token"),
        errors.timeout("slow", retry_after=3),
        errors.bad_request("no"),
    ],
)
def test_an_error_survives_the_wire(error: StatusError) -> None:
    assert from_status(error.status()).status() in (
        error.status(),
        error.status() | {"details": {}},
    )
