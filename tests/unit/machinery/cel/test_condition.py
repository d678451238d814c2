"""CEL as Kubernetes' users write it."""

from typing import Any

import pytest

from kedge.machinery.cel import CelCondition, CelError, uses

POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "registry.example/web:1"}], "hostPID": True},
}


def holds(expression: str, value: Any = POD) -> bool:
    return CelCondition(expression, uses.match_conditions()).holds({"object": value})


@pytest.mark.parametrize(
    "expression",
    [
        "object.metadata.name == 'web-0'",
        "object.metadata.name.startsWith('web-') && !object.metadata.name.endsWith('x')",
        "has(object.metadata.labels) && 'app' in object.metadata.labels",
        "object.spec.containers.all(c, c.image.matches('^registry\\\\.example/'))",
        "object.?metadata.?annotations[?'x'].orValue('none') == 'none'",
        "object.spec.missing == 1 || true",
        "object.spec.hostPID == true",
        "'A,B'.lowerAscii().split(',') == ['a', 'b']",
        "size(object.spec.containers) == 1",
    ],
)
def test_expressions_that_are_true(expression: str) -> None:
    assert holds(expression) is True


def test_missing_field_is_an_error_not_a_lie() -> None:
    with pytest.raises(CelError, match="resulted in error: no such key: missing"):
        holds("object.spec.missing == 1")


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("1 +", "compilation failed: ERROR: <input>:1:4: Syntax error"),
        ("nobody == 1", "undeclared reference to 'nobody'"),
        ("'text'", "must evaluate to bool"),
        ("object.spec.hostPID", "must evaluate to bool"),
        ("'a' + 1 == 'b'", "found no matching overload"),
    ],
)
def test_nonsense_is_found_before_anything_is_evaluated(expression: str, why: str) -> None:
    with pytest.raises(CelError) as error:
        CelCondition(expression, uses.match_conditions())
    assert why in str(error.value)


def test_loops_within_loops_are_cut_short() -> None:
    many = {"items": list(range(5000))}
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        holds("object.items.all(x, object.items.all(y, x + y >= 0))", many)


def test_errors_do_not_quote_the_object() -> None:
    with pytest.raises(CelError) as error:
        holds("object.password > 1", {"password": "hunter2"})
    assert "hunter2" not in str(error.value)
