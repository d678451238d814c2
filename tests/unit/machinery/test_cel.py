"""CEL as Kubernetes' users write it."""

import subprocess
import sys
from typing import Any

import pytest

from kedge.machinery.cel import CelCondition, CelError

POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "registry.example/web:1"}], "hostPID": True},
}


def holds(expression: str, value: Any = POD) -> bool:
    return CelCondition(expression, ("object",)).holds({"object": value})


@pytest.mark.parametrize(
    "expression",
    [
        "object.metadata.name == 'web-0'",
        "object.metadata.name.startsWith('web-') && !object.metadata.name.endsWith('x')",
        "has(object.metadata.labels) && 'app' in object.metadata.labels",
        "object.spec.containers.all(c, c.image.matches('^registry\\\\.example/'))",
        "object.?metadata.?annotations[?'x'].orValue('none') == 'none'",
        "object.spec.missing == 1 || true",
        "object.spec.hostPID",
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
        ("'a' + 1 == 'b'", "found no matching overload"),
    ],
)
def test_nonsense_is_found_before_anything_is_evaluated(expression: str, why: str) -> None:
    with pytest.raises(CelError) as error:
        CelCondition(expression, ("object",))
    assert why in str(error.value)


def test_loops_within_loops_are_cut_short() -> None:
    many = {"items": list(range(5000))}
    with pytest.raises(CelError, match="Iteration budget exceeded"):
        holds("object.items.all(x, object.items.all(y, x + y >= 0))", many)


def test_errors_do_not_quote_the_object() -> None:
    with pytest.raises(CelError) as error:
        holds("object.size > 1", {"size": 1 << 70, "password": "hunter2"})
    assert "hunter2" not in str(error.value)
    with pytest.raises(CelError) as error:
        holds("object.password", {"password": "hunter2"})
    assert "hunter2" not in str(error.value)


def test_library_is_not_loaded_before_it_is_needed() -> None:
    program = "import sys, kedge.machinery.cel; sys.exit('cel_expr_python' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
