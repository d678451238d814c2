import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery import strategic
from kedge.machinery.patch import PatchError
from kedge.machinery.schema import Schema

TEXT = Schema(type="string")


def thing() -> Schema:
    """A type of every kind of member; `things` and the like hold more of it."""
    node = Schema(type="object", fields={})
    many: dict[str, Any] = {"type": "list", "items": node}
    node.fields.update(
        name=TEXT,
        value=TEXT,
        other=TEXT,
        labels=Schema(type="map", items=TEXT),
        things=Schema(**many, merge=True, merge_key="name"),
        unions=Schema(**many, merge=True, merge_key="name", retain_keys=True),
        atoms=Schema(**many),
        marks=Schema(type="list", items=TEXT, merge=True),
        args=Schema(type="list", items=TEXT),
        part=node,
        union=Schema(type="object", fields=node.fields, retain_keys=True),
        keyless=Schema(**many, merge=True),
    )
    return node


SCHEMA = thing()


def cases() -> Iterator[Any]:
    for file in sorted((Path(__file__).parent / "strategic").glob("*.yaml")):
        for case in yaml.safe_load(file.read_text()):
            yield pytest.param(case, id=f"{file.stem}: {case['case']}")


@pytest.mark.parametrize("case", list(cases()))
def test_case(case: dict[str, Any]) -> None:
    document, patch = case["document"], case["patch"]
    before = copy.deepcopy((document, patch))
    if "error" in case:
        with pytest.raises(PatchError) as failure:
            strategic.apply(SCHEMA, document, patch)
        assert failure.value.message == case["error"]
        assert failure.value.code == case.get("code", 500)
    else:
        assert strategic.apply(SCHEMA, document, patch) == case["expected"]
    assert (document, patch) == before


things = st.lists(
    st.builds(
        lambda n, v: {"name": n, "value": v}, st.sampled_from("abcdef"), st.sampled_from("xy")
    ),
    unique_by=lambda item: item["name"],
)


@given(things, things)
def test_every_patched_item_is_found_afterwards_and_none_is_lost(
    live: list[dict[str, str]], patch: list[dict[str, str]]
) -> None:
    merged = strategic.apply(SCHEMA, {"things": live}, {"things": patch})["things"]
    expected = {item["name"]: item for item in live} | {item["name"]: item for item in patch}
    assert {item["name"]: item for item in merged} == expected
    assert len(merged) == len(expected)


@given(things, things)
def test_the_element_order_is_kept_and_so_is_the_order_of_what_it_does_not_name(
    live: list[dict[str, str]], wanted: list[dict[str, str]]
) -> None:
    order = [{"name": item["name"]} for item in wanted]
    patch = {"$setElementOrder/things": order, "things": wanted}
    merged = [item["name"] for item in strategic.apply(SCHEMA, {"things": live}, patch)["things"]]
    named = [item["name"] for item in wanted]
    others = [item["name"] for item in live if item["name"] not in named]
    assert [name for name in merged if name in named] == named
    assert [name for name in merged if name not in named] == others


@given(things, things)
def test_a_patch_applied_twice_changes_nothing_more(
    live: list[dict[str, str]], patch: list[dict[str, str]]
) -> None:
    once = strategic.apply(SCHEMA, {"things": live}, {"things": patch})
    assert strategic.apply(SCHEMA, once, {"things": patch}) == once


@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 9), unique=True))
def test_merged_plain_values_form_a_set(live: list[int], patch: list[int]) -> None:
    merged = strategic.apply(SCHEMA, {"marks": live}, {"marks": patch})["marks"]
    assert sorted(merged) == sorted({*live, *patch})
