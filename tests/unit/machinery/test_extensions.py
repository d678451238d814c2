from typing import Any

import pytest

from kedge.machinery.errors import ErrorScope, FieldError
from kedge.machinery.extensions import sorted_out, trail, warning, without
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


def spelled() -> Schema:
    right = Schema(type="string", extension=True)
    other = Schema(type="string", extension=True, spells="rightName")
    return Schema(type="list", items=obj(rightName=right, rightname=other))


@pytest.mark.parametrize(
    ("written", "settled"),
    [
        ({}, {}),
        ({"rightName": "x"}, {"rightName": "x"}),
        ({"rightname": "x"}, {"rightName": "x"}),
        ({"rightname": "x", "rightName": "x"}, {"rightName": "x"}),
        ({"rightname": "x", "rightName": "y"}, {"rightname": "x", "rightName": "y"}),
    ],
)
def test_other_spellings_are_put_right_unless_they_contradict(
    written: dict[str, str], settled: dict[str, str]
) -> None:
    found = trail(obj(many=spelled()))
    assert found is not None
    document: dict[str, Any] = {"many": [{}, dict(written)]}
    found.settle(document)
    assert document == {"many": [{}, settled]}


def test_errors_count_for_those_who_mind_them() -> None:
    both = FieldError.required("a")
    ours = FieldError.required("b").only(ErrorScope.KEDGE)
    theirs = FieldError.required("c").only(ErrorScope.EXTENSION).under("spec")
    follows = FieldError.required("d").only(ErrorScope.KUBERNETES)
    errors = [both, ours, theirs, theirs, follows]
    assert sorted_out(errors, upstream_only=False) == ([both, ours], ["spec.c"])
    assert sorted_out(errors, upstream_only=True) == ([both, theirs, theirs, follows], [])


@pytest.mark.parametrize(
    "document",
    [{"many": None}, {"many": "x"}, {"many": [None, "x", {"$patch": "delete"}]}, [1], None],
)
def test_what_has_no_shape_is_left_alone(document: Any) -> None:
    found = trail(obj(many=spelled()))
    assert found is not None
    found.settle(document)
