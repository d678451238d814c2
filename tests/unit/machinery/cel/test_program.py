"""Whole expressions: values, errors, costs and limits as a kube-apiserver has them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.cel import (
    CelBudgetError,
    CelError,
    CelFoldError,
    CelPatienceError,
    CelProgram,
    Environment,
)
from kedge.machinery.cel.types import DOUBLE, DYN, INT, STRING, list_of, object_of
from kedge.machinery.cel.values import INT_MAX, INT_MIN
from kedge.machinery.yaml_text import read

HERE = Path(__file__).parent
VECTORS: dict[str, dict[str, Any]] = read((HERE / "vectors.yaml").read_text())
PUBLISHED: dict[str, Any] = read((HERE / "published_examples.yaml").read_text())
VALUES: dict[str, Any] = VECTORS["values"] | PUBLISHED["values"]
RUN_TIME_ERRORS: dict[str, str] = VECTORS["errors"] | PUBLISHED["errors"]
ERRORS: list[list[str]] = read((HERE / "compile_errors.yaml").read_text()) + PUBLISHED["refused"]
SELF = {"a": 1, "s": "abc", "l": [1, 2, 3], "bad": "5y"}
TYPE = object_of(
    "self",
    {
        "a": INT,
        "s": STRING,
        "l": list_of(INT),
        "d": DOUBLE,
        "bad": STRING,
        "any": DYN,
        "missing": INT,
    },
)
ENVIRONMENT = Environment({"self": TYPE, "any": DYN})


def run(expression: str, **values: Any) -> Any:
    return CelProgram(expression, ENVIRONMENT).run({"self": SELF, **values})[0]


def cost(expression: str, **values: Any) -> int:
    return CelProgram(expression, ENVIRONMENT).run({"self": SELF, **values})[1]


@pytest.mark.parametrize("expression", VALUES)
def test_values_are_those_of_a_real_server(expression: str) -> None:
    assert run(expression) == VALUES[expression]


@pytest.mark.parametrize("expression", RUN_TIME_ERRORS)
def test_errors_at_run_time_are_in_upstreams_words(expression: str) -> None:
    with pytest.raises(CelError) as error:
        run(expression)
    assert str(error.value) == RUN_TIME_ERRORS[expression]


@pytest.mark.parametrize("expression", VECTORS["folded"])
def test_a_constant_part_that_fails_is_refused_at_once(expression: str) -> None:
    with pytest.raises(CelFoldError) as error:
        CelProgram(expression, ENVIRONMENT)
    assert str(error.value) == VECTORS["folded"][expression]


@pytest.mark.parametrize(("expression", "words"), ERRORS)
def test_compilation_errors_are_in_upstreams_words(expression: str, words: str) -> None:
    with pytest.raises(CelError) as error:
        CelProgram(expression, ENVIRONMENT)
    assert words in str(error.value)


def test_an_error_shows_the_line_and_a_mark_below_it() -> None:
    with pytest.raises(CelError) as error:
        CelProgram("self.a > 0 &&\n  self.b > 1", ENVIRONMENT)
    assert str(error.value) == (
        "ERROR: <input>:2:7: undefined field 'b'\n |   self.b > 1\n | ......^"
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("self.a > 0", 3),
        ("has(self.a)", 1),
        ("self.s == 'abc'", 3),
        ("self.a == 1 || self.a == 2", 3),
        ("self.l.all(x, x > 0)", 2 + 3 * 5 + 1),
        ("self.l.all(x, x > 1)", 2 + 5 + 2 + 1),
        ("self.l.exists(x, x > 5)", 2 + 3 * 6 + 1),
        ("self.l.exists(x, x == 1)", 2 + 6 + 3 + 1),
        ("self.l.exists_one(x, x == 1)", 2 + (2 + 2) + 2 * (2 + 1) + 2),
        ("self.l.map(x, x).size() == 3", 2 + 3 * 13 + 1 + 1 + 1),
        ("self.a in [1, 2]", 2),
        ("'abcdefghijk'.contains('b')", 2),
        ("self.s.matches('abcdefgh')", 2 + 1 * 2),
        ("[self.a].size() == 1", 2 + 10 + 1 + 1),
        ("{'a': self.a}.a == 1", 2 + 30 + 1 + 1),
        ("int('5') == 5", 1),
    ],
)
def test_costs_are_those_of_the_tracker(expression: str, expected: int) -> None:
    assert cost(expression) == expected


def test_an_evaluation_that_costs_too_much_is_stopped_while_it_runs() -> None:
    program = CelProgram("any.all(x, any.all(y, x + y >= 0))", ENVIRONMENT)
    with pytest.raises(CelBudgetError, match="operation cancelled: actual cost limit exceeded"):
        program.run({"any": list(range(5000))})


def test_work_is_charged_before_it_is_done() -> None:
    program = CelProgram("any.map(x, x + x + x + x).size() > 0", ENVIRONMENT)
    with pytest.raises(CelBudgetError, match="actual cost limit exceeded"):
        program.run({"any": ["x" * 500_000] * 5000})


def test_a_budget_error_is_not_absorbed_by_a_logical_operator() -> None:
    program = CelProgram("any.all(x, any.all(y, x + y >= 0)) || true", ENVIRONMENT)
    with pytest.raises(CelBudgetError):
        program.run({"any": list(range(5000))})


def test_patience_ends_before_the_limit_does() -> None:
    program = CelProgram("any.all(x, x >= 0)", ENVIRONMENT)
    with pytest.raises(CelPatienceError):
        program.run({"any": list(range(50_000))}, patience=10_000)
    assert program.run({"any": list(range(50_000))})[0] is True


def test_a_deadline_interrupts_a_loop() -> None:
    program = CelProgram("any.all(x, x >= 0)", ENVIRONMENT)
    with pytest.raises(CelBudgetError, match="operation interrupted"):
        program.run({"any": list(range(50_000))}, interrupted=lambda: True)


def test_a_deep_expression_is_refused_and_a_long_one_is_not() -> None:
    with pytest.raises(CelError, match="expression recursion limit exceeded: 250"):
        CelProgram("(" * 300 + "1" + ")" * 300 + " == 1", ENVIRONMENT)
    with pytest.raises(CelError, match="max recursion depth exceeded"):
        CelProgram("any" + ".a" * 300 + " == 1", ENVIRONMENT)
    with pytest.raises(CelError, match="size exceeds limit: size: 100001, limit 100000"):
        CelProgram(" " * 100_001, ENVIRONMENT)
    assert run(" && ".join(["self.a == 1"] * 5000)) is True


def test_errors_name_keys_but_quote_no_values() -> None:
    with pytest.raises(CelError) as error:
        run("any.size > 1", any={"size": "hunter2"})
    assert "hunter2" not in str(error.value)


INTEGERS = st.integers(INT_MIN, INT_MAX)
LAWS = Environment({"a": INT, "b": INT, "s": STRING, "l": list_of(INT)})


def law(expression: str, **values: Any) -> Any:
    return CelProgram(expression, LAWS).run(values)[0]


@given(INTEGERS, INTEGERS.filter(lambda value: value != 0))
def test_quotient_and_rest_make_the_dividend(a: int, b: int) -> None:
    if (a, b) != (INT_MIN, -1):
        assert law("(a / b) * b + a % b == a", a=a, b=b) is True


@given(INTEGERS, INTEGERS)
def test_a_sum_is_exact_or_an_overflow(a: int, b: int) -> None:
    if INT_MIN <= a + b <= INT_MAX:
        assert law("a + b", a=a, b=b) == a + b
    else:
        with pytest.raises(CelError, match="integer overflow"):
            law("a + b", a=a, b=b)


@given(st.lists(INTEGERS, max_size=20))
def test_all_is_the_negation_of_exists_not(values: list[int]) -> None:
    assert law("l.all(x, x > 5) == !l.exists(x, !(x > 5))", l=values) is True


@given(st.lists(INTEGERS, max_size=20))
def test_a_sorted_list_has_the_same_elements_in_order(values: list[int]) -> None:
    assert law("l.sort().isSorted() && sets.equivalent(l.sort(), l)", l=values) is True


@given(st.text(max_size=40))
def test_a_quoted_text_stands_for_the_text(text: str) -> None:
    quoted = law("strings.quote(s)", s=text)
    if "\x00" not in text:
        assert law(f"{quoted} == s", s=text) is True


@given(st.text(max_size=30), st.text(min_size=1, max_size=3))
def test_joining_what_was_split_gives_the_text(text: str, separator: str) -> None:
    program = CelProgram("a.split(b).join(b) == a", Environment({"a": STRING, "b": STRING}))
    assert program.run({"a": text, "b": separator})[0] is True


def test_a_branch_of_any_type_makes_the_whole_of_any_type() -> None:
    for expression in (
        "true ? any : true",
        "true ? true : any",
        "true ? true : (true ? any : true)",
    ):
        assert str(CelProgram(expression, ENVIRONMENT).type) == "dyn"
