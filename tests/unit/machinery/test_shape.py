"""Fitting documents to schemas."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.pod.pod import RESOURCE
from kedge.machinery.schema import ANY, Schema
from kedge.machinery.shape import AsMapping, TypeMismatch, fit

TEXT = Schema(type="string")


def whole(**fields: Schema) -> Schema:
    return Schema(type="object", name="io.k8s.api.test.v1.Thing", fields=fields)


def fitted(schema: Schema, value: Any) -> Any:
    return fit(whole(x=schema), {"x": value}, [])["x"]


def test_undeclared_fields_are_dropped_and_named() -> None:
    inner = whole(name=TEXT)
    schema = whole(list=Schema(type="list", items=inner), map=Schema(type="map", items=inner))
    unknown: list[str] = []
    document = {"list": [{"name": "a", "nme": 1}], "map": {"k": {"b": 2}}, "c": {"d": 3}}
    assert fit(schema, document, unknown) == {"list": [{"name": "a"}], "map": {"k": {}}}
    assert unknown == ["list[0].nme", "map.k.b", "c"]


def test_nulls_and_empty_collections_are_not_set() -> None:
    schema = whole(
        a=TEXT,
        b=Schema(type="list", items=TEXT),
        c=Schema(type="map", items=TEXT),
        d=whole(),
        e=Schema(type="list", items=TEXT, keep_empty=True),
        f=Schema(type="string", nullable=True),
    )
    document: dict[str, Any] = {"a": None, "b": [], "c": {}, "d": {}, "e": [], "f": None}
    assert fit(schema, document, []) == {"d": {}, "e": [], "f": None}


def test_nulls_inside_of_lists_and_maps_are_zero_values() -> None:
    schema = whole(
        a=Schema(type="list", items=TEXT),
        b=Schema(type="map", items=TEXT),
        c=Schema(type="list", items=whole(x=TEXT)),
        d=Schema(type="list", items=Schema(type="integer")),
        e=Schema(type="map", items=Schema(type="quantity")),
    )
    document = {"a": [None], "b": {"k": None}, "c": [None], "d": [None], "e": {"cpu": None}}
    assert fit(schema, document, []) == {
        "a": [""],
        "b": {"k": ""},
        "c": [{}],
        "d": [0],
        "e": {"cpu": "0"},
    }


@pytest.mark.parametrize(
    ("type_", "given", "why"),
    [
        ("integer", 2.0, "cannot unmarshal number 2.0"),
        ("time", "", 'parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
    ],
)
def test_go_does_not_read_these(type_: Any, given: Any, why: str) -> None:
    with pytest.raises(TypeMismatch) as raised:
        fit(whole(a=Schema(type=type_)), {"a": given}, [])
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "given", "kept"),
    [
        (Schema(type="integer", format="int32"), 2**31 - 1, 2**31 - 1),
        (Schema(type="number"), 1, 1),
        (Schema(type="quantity"), "0.5", "500m"),
        (Schema(type="quantity"), 1024, "1024"),
        (Schema(type="int-or-string"), "50%", "50%"),
        (Schema(type="time"), "2030-01-01T01:00:00.5+01:00", "2030-01-01T00:00:00Z"),
        (Schema(type="micro-time"), "2030-01-01T00:00:00.5Z", "2030-01-01T00:00:00.500000Z"),
        (Schema(type="bytes"), "YW\nJj", "YWJj"),
        (ANY, {"a": [None, {}]}, {"a": [None, {}]}),
    ],
)
def test_scalars_become_canonical(schema: Schema, given: Any, kept: Any) -> None:
    assert fitted(schema, given) == kept


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TEXT, 1),
        (TEXT, ["a"]),
        (Schema(type="integer", format="int32"), 2**31),
        (Schema(type="integer", format="int32"), -3e9),
        (Schema(type="integer"), 2**63),
        (Schema(type="integer"), True),
        (Schema(type="integer"), 1.5),
        (Schema(type="number"), "1"),
        (Schema(type="boolean"), "true"),
        (Schema(type="quantity"), "a lot"),
        (Schema(type="quantity"), {}),
        (Schema(type="int-or-string"), 2**31),
        (Schema(type="int-or-string"), 1.5),
        (Schema(type="time"), "yesterday"),
        (Schema(type="time"), 5),
        (Schema(type="bytes"), "???"),
        (Schema(type="bytes"), "é"),
        (Schema(type="list", items=TEXT), {"a": "b"}),
        (Schema(type="list", items=TEXT), [1]),
        (Schema(type="map", items=TEXT), []),
        (whole(), []),
        (ANY, 2**70),
    ],
)
def test_wrong_types_do_not_fit(schema: Schema, value: Any) -> None:
    with pytest.raises(TypeMismatch) as caught:
        fitted(schema, value)
    assert caught.value.field.startswith("x")


def test_the_complaint_is_worded_as_go_words_it() -> None:
    schema = whole(spec=whole(replicas=Schema(type="integer", format="int32")))
    with pytest.raises(TypeMismatch) as caught:
        fit(schema, {"spec": {"replicas": "3"}}, [])
    assert str(caught.value).startswith("json: cannot unmarshal string into Go struct field ")
    assert str(caught.value).endswith("spec.replicas of type int32")


def test_the_complaint_names_the_innermost_struct_and_no_indices() -> None:
    inner = whole(env=Schema(type="list", items=TEXT))
    inner.name = "io.k8s.api.core.v1.Container"
    schema = whole(spec=whole(containers=Schema(type="list", items=inner)))
    with pytest.raises(TypeMismatch) as caught:
        fit(schema, {"spec": {"containers": [{}, {"env": {}}]}}, [])
    assert str(caught.value) == (
        "json: cannot unmarshal object into Go struct field Container.spec.containers.env "
        "of type []string"
    )


def test_a_list_of_pairs_may_be_written_as_a_mapping() -> None:
    pair = whole(name=TEXT, value=TEXT)
    schema = whole(env=Schema(type="list", items=pair, pairs=("name", "value")))
    unknown: list[str] = []
    assert fit(schema, {"env": {"B": "1", "A": "2"}}, unknown) == {
        "env": [{"name": "B", "value": "1"}, {"name": "A", "value": "2"}]
    }
    assert unknown == [AsMapping("env")]
    assert type(unknown[0]) is AsMapping
    with pytest.raises(TypeMismatch, match="cannot unmarshal number"):
        fit(schema, {"env": {"A": 1}}, [])


def test_nothing_fits_that_is_nested_too_deeply() -> None:
    loop = whole()
    loop.fields["x"] = loop
    deep: Any = {}
    for _ in range(150):
        deep = {"x": deep}
    for schema in (loop, whole(x=ANY), Schema(type="object", open=True)):
        with pytest.raises(TypeMismatch, match="max depth"):
            fit(schema, deep, [])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "containers", "name", "env", "resources", "limits", "metadata"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), VALUES))
def test_what_was_fitted_once_fits_as_it_is(document: dict[str, Any]) -> None:
    try:
        once = fit(RESOURCE.schema, document, [])
    except TypeMismatch:
        return
    unknown: list[str] = []
    assert fit(RESOURCE.schema, once, unknown) == once
    assert unknown == []
    RESOURCE.from_document(once)
