"""The rules of a server: in order, counted and bounded."""

import pytest

from kedge.api.testing.fault_rule import FaultRule, RequestFacts
from kedge.apiserver.testing.fault_table import MOST_RULES, FaultTable
from kedge.machinery.errors import StatusError

GET = RequestFacts(verb="get", resource="pods")


def test_the_first_rule_that_fits_counts() -> None:
    table = FaultTable()
    table.add(FaultRule(verbs=("list",), code=500))
    table.add(FaultRule(code=409, times=1))
    table.add(FaultRule(code=503))
    taken = [table.take(GET) for _ in range(3)]
    assert [rule.code for rule in taken if rule] == [409, 503, 503]
    assert [rule.hits for rule in table.rules()] == [0, 1, 2]


def test_rules_are_bounded_and_spent_ones_make_room() -> None:
    table = FaultTable()
    for _ in range(MOST_RULES):
        table.add(FaultRule(code=500, times=1))
    with pytest.raises(StatusError, match="remove some"):
        table.add(FaultRule(code=500))
    table.take(GET)
    assert table.add(FaultRule(code=500)).id == f"fault-{MOST_RULES + 1}"
    assert len(table.rules()) == MOST_RULES


def test_removed_rules_do_not_count() -> None:
    table = FaultTable()
    name = table.add(FaultRule(code=500)).id
    assert table.remove(name).id == name
    assert table.take(GET) is None
    with pytest.raises(StatusError) as caught:
        table.remove(name)
    assert caught.value.code == 404
    table.add(FaultRule(code=500))
    assert len(table.clear()) == 1
    assert table.rules() == []
