from typing import Any

import pytest

from kedge.machinery.extensions import trail, warning, without
from kedge.machinery.schema import Schema
from kedge.machinery.shape import fit

TEXT = Schema(type="string")


def obj(**fields: Schema) -> Schema:
    return Schema(type="object", fields=fields)


def own(**fields: Schema) -> Schema:
    return Schema(type="object", fields=fields, extension=True)


LEAF = obj(name=TEXT, extra=own(value=TEXT))
TREE = obj(
    plain=obj(name=TEXT),
    leaves=Schema(type="list", items=LEAF),
    named=Schema(type="map", items=LEAF),
    top=Schema(type="string", extension=True),
)


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({}, []),
        ({"plain": {"name": "x"}, "leaves": [{"name": "a"}], "named": {"a": {}}}, []),
        ({"top": "x"}, ["top"]),
        ({"top": ""}, ["top"]),
        ({"leaves": [{}, {"extra": {"value": "x"}}]}, ["leaves[1].extra"]),
        ({"named": {"b": {"extra": {}}}, "top": "x"}, ["top", "named.b.extra"]),
    ],
)
def test_extensions_are_found_wherever_they_are(document: dict[str, Any], paths: list[str]) -> None:
    found = trail(TREE)
    assert found is not None
    assert found.find(document) == paths


def test_a_schema_without_any_has_no_trail() -> None:
    assert trail(obj(name=TEXT, inner=Schema(type="list", items=obj(name=TEXT)))) is None


def cyclic() -> Schema:
    node = obj(extra=Schema(type="string", extension=True))
    node.fields["below"] = Schema(type="list", items=node)
    return node


def test_types_that_hold_themselves_are_followed_as_deep_as_the_document() -> None:
    found = trail(cyclic())
    assert found is not None
    assert found.find({"below": [{"below": [{"extra": "x"}]}]}) == ["below[0].below[0].extra"]


@pytest.mark.parametrize("schema", [TREE, cyclic()], ids=["tree", "cycle"])
def test_nothing_of_them_is_left_without(schema: Schema) -> None:
    plain = without(schema)
    assert trail(plain) is None
    unknown: list[str] = []
    document = {"top": "x", "extra": "x", "leaves": [{"name": "a", "extra": {}}]}
    if schema is TREE:
        assert fit(plain, document, unknown) == {"leaves": [{"name": "a"}]}
        assert unknown == ["top", "extra", "leaves[0].extra"]
    assert trail(schema) is not None, "the schema itself has changed"


def test_the_warning_names_the_path() -> None:
    assert warning("spec.limits[0].selector") == (
        "spec.limits[0].selector: kedge extension, not portable to other clusters"
    )
