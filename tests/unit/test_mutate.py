"""The tables of tools/mutate.py name modules and tests that exist."""

from collections import Counter
from typing import Any

import mutate
import pytest
from mutants import mutants


def test_the_tables_name_files_that_exist() -> None:
    assert [*mutate.missing()] == []


def test_each_pure_name_has_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in mutate.PURE:
        monkeypatch.setattr(mutate, "PURE", (name,))
        assert [*mutate.modules()], name


def test_a_name_that_does_not_exist_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "PURE", ("machinery/merge", "machinery/gone"))
    monkeypatch.setattr(mutate, "MORE_TESTS", {"machinery/merge": ("unit/gone.py",)})
    assert [*mutate.missing()] == ["src/kedge/machinery/gone", "tests/unit/gone.py"]


def test_each_equivalent_mutant_is_one_mutant_of_its_module() -> None:
    for module, functions in mutate.equivalents().items():
        found = mutants((mutate.SOURCE / f"{module}.py").read_text())
        times = Counter((each.name, each.change) for each in found)
        for name, changes in functions.items():
            assert {change: times[name, change] for change in changes} == dict.fromkeys(changes, 1)
            assert all(changes.values())


def test_a_mutant_replaces_the_code_of_a_loaded_function() -> None:
    source = "def larger(a, b):\n    return max(a, b)\n"
    loaded: dict[str, Any] = {}
    exec(source, loaded)
    larger = loaded["larger"]
    calls = [each for each in mutants(source) if each.change == "max(a, b)  ->  min(a, b)"]
    assert mutate.exchange(calls[0], [larger])
    assert larger(1, 2) == 1


def test_a_mutant_of_a_function_that_is_not_loaded_is_left_out() -> None:
    source = "def larger(a, b):\n    return max(a, b)\n\ndef other():\n    return len('')\n"
    loaded: dict[str, Any] = {}
    exec(source, loaded)
    of_other = [each for each in mutants(source) if each.name == "other"]
    assert not any(mutate.exchange(each, [loaded["larger"]]) for each in of_other)
