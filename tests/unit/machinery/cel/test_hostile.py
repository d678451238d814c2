"""Small expressions that would take for ever, or all memory."""

import contextlib
from time import process_time

import pytest

from kedge.machinery.cel import CelError, CelProgram, uses
from kedge.machinery.cel.types import DYN
from kedge.machinery.patience import LOOP_PATIENCE, PatienceError, on_event_loop

ENVIRONMENT = uses.crd_rule(DYN)
LONGEST_SECONDS = 2.0
"""Each of them takes hours, or gigabytes, if nothing stops it; now about a tenth of a second."""

EXPRESSIONS = {
    "chain of optMap": "optional.of(1)" + ".optMap(a, a)" * 30 + ".hasValue()",
    "chain of optFlatMap": "optional.of(1)" + ".optFlatMap(a, optional.of(a))" * 30 + ".hasValue()",
    "maps as keys": "[1]" + ".map(a, {a: a})" * 30 + ".size() == 1",
    "empty maps as keys": "[]" + ".map(a, {a: a})" * 30 + ".size() == 1",
    "lists that double": "[[1]]" + ".map(a, a + a)" * 40 + ".size() == 3",
    "many long lists": "lists.range(1000).map(i, lists.range(50000) + lists.range(50000)) == []",
    "comparison of shared lists": "[[1]]"
    + ".map(a, [a, a])" * 40
    + " == [[1]]"
    + ".map(a, [a, a])" * 40,
    "shared lists as text": "'%s'.format([[[1]]" + ".map(a, [a, a])" * 40 + "]) == ''",
    "shared lists in a list": "[1]"
    + ".map(a, [a, a])" * 40
    + " in [[1]"
    + ".map(a, [a, a])" * 40
    + "]",
    "distinct shared lists": "[[1]]" + ".map(a, [a, a])" * 40 + ".distinct().size() == 1",
    "many times one list": "["
    + ", ".join(["lists.range(5000)"] * 200)
    + "].map(l, [l, l, l]).flatten(3).size() == 1",
    "many times one list of nothing": "[[]]" + ".map(a, [a, a])" * 40 + ".flatten(40).size() == 0",
    "many matches": "'" + "a" * 4000 + "'.replace('a', 'aaaaaaaaaa').findAll('a').size() == 1",
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_hostile_expression_ends_soon(name: str) -> None:
    begun = process_time()
    with contextlib.suppress(CelError):
        CelProgram(EXPRESSIONS[name], ENVIRONMENT).run({"self": {}}, limit=1_000_000)
    assert process_time() - begun < LONGEST_SECONDS


@pytest.mark.parametrize(
    "expression",
    [
        "isURL(self)",
        "url(self).getHost() == ''",
        "self.matches('(a+)+$')",
        "[lists.range(30000), lists.range(30000)].flatten().size() == 1",
        "isIP(self) || isCIDR(self) || isQuantity(self) || isSemver(self)",
    ],
)
def test_a_long_text_leaves_the_event_loop(expression: str) -> None:
    program = CelProgram(expression, ENVIRONMENT)
    with pytest.raises(PatienceError):
        program.run({"self": "a" * 1_500_000}, patience=LOOP_PATIENCE)


@pytest.mark.parametrize("index", ["0.0 / 0.0", "1.0 / 0.0", "1.5", "-1.0"])
def test_an_index_that_is_no_whole_number_is_an_error(index: str) -> None:
    with pytest.raises(CelError):
        CelProgram(f"[1, 2][dyn({index})] == 1", ENVIRONMENT).run({"self": {}})


def test_ordinary_optional_chains_are_accepted() -> None:
    chain = "optional.of(1)" + ".optMap(a, a + 1)" * 3 + ".value() == 4"
    assert CelProgram(chain, ENVIRONMENT).run({"self": {}})[0] is True


def test_equal_trees_are_equal_and_a_failed_overload_binds_nothing() -> None:
    text = (
        "[[1, 2], [3]] == [[1, 2], [3]] && [] == [] && {'a': [1]} == {'a': [1]} && [1] + [] == [1]"
    )
    assert CelProgram(text, ENVIRONMENT).run({"self": {}})[0] is True


def test_a_long_expression_is_not_compiled_on_the_event_loop() -> None:
    long = f"[{', '.join(['1'] * 3_000)}].size() == 3"
    with on_event_loop():
        CelProgram("self == 1", ENVIRONMENT)
        with pytest.raises(PatienceError):
            CelProgram(long, ENVIRONMENT)
    assert CelProgram(long, ENVIRONMENT).expression == long


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(2000).all(i, 'a'.find('a' + string(i)) == '' || true)",
        "lists.range(2000).all(i, timestamp('2020-01-01T00:00:00Z').getHours(string(i)) > 0"
        " || true)",
    ],
)
def test_patterns_and_zones_that_differ_each_time_leave_the_event_loop(expression: str) -> None:
    with on_event_loop():
        program = CelProgram(expression, ENVIRONMENT)
        with pytest.raises(PatienceError):
            program.run({"self": {}})
