"""Conversions of the record of a cluster."""

from typing import Any

import pytest

from kedge.cli.cluster.conversions import CONVERSIONS, FIRST, LAYOUT, converted, pending

EVER_RUN = {"layout": 1, "name": "blue", "port": 7001}


def none_exists(_: str) -> bool:
    return False


def all_exist(_: str) -> bool:
    return True


def test_the_number_of_the_layout_counts_the_conversions() -> None:
    assert len(CONVERSIONS) + FIRST == LAYOUT
    assert pending(FIRST) == CONVERSIONS
    assert pending(LAYOUT) == ()


def test_1_to_2_a_cluster_that_has_run_lists_its_files() -> None:
    keys = ["pki/ca.crt", "pki/ca.key"]
    assert converted(EVER_RUN, 1, none_exists) == {**EVER_RUN, "kept": [*keys, "token"]}
    # The lock exists only beside a database.
    known = converted(EVER_RUN, 1, lambda file: file == "store.db.lock")
    assert known["kept"] == [*keys, "store.db", "token"]


def test_1_to_2_a_cluster_that_never_ran_has_no_files() -> None:
    assert converted({**EVER_RUN, "port": 0}, 1, all_exist) == {**EVER_RUN, "port": 0}


def test_1_to_2_a_list_that_exists_stays() -> None:
    known = {**EVER_RUN, "kept": ["pki/ca.key"]}
    assert converted(known, 1, all_exist) == known


@pytest.mark.parametrize("document", [EVER_RUN, {"name": "blue"}, {**EVER_RUN, "colour": "blue"}])
@pytest.mark.parametrize("exists", [none_exists, all_exist])
def test_converting_twice_is_converting_once(document: Any, exists: Any) -> None:
    once = converted(document, FIRST, exists)
    assert converted(once, FIRST, exists) == once
