from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.strategy import Strategy

OLD, NEW = ConfigMap(data={"a": "1"}), ConfigMap(data={"a": "2"})


def test_the_default_strategy_takes_objects_as_they_are() -> None:
    rules = Strategy[ConfigMap]()
    for prepare in (rules.default, rules.prepare_for_create, rules.prepare_for_delete):
        assert prepare(NEW) is NEW
    for prepare_change in (rules.prepare_for_update, rules.prepare_for_status_update):
        assert prepare_change(NEW, OLD) is NEW


def test_the_default_strategy_finds_no_errors() -> None:
    rules = Strategy[ConfigMap]()
    errors = [*rules.validate(NEW), *rules.validate_new(NEW), *rules.warnings(NEW)]
    assert errors == []
    assert [*rules.validate_update(NEW, OLD), *rules.validate_status(NEW, OLD)] == []
    assert rules.check_name("not a name") != []


def test_the_default_strategy_deletes_immediately() -> None:
    rules = Strategy[ConfigMap]()
    assert (rules.blocks_deletion(OLD), rules.grace_period(OLD, 30)) == (False, 0)
    assert rules.validation_cost() == 1
