"""JSON patches made of two documents."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.json_diff import operations
from kedge.machinery.patch import apply_json

KEYS = st.text("a/~b", max_size=3)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, DOCUMENTS), st.dictionaries(KEYS, DOCUMENTS))
def test_the_patch_leads_from_one_document_to_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert apply_json(before, list(operations(before, after))) == after


def test_equal_documents_need_no_patch() -> None:
    assert list(operations({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]})) == []


def test_only_the_difference_is_named() -> None:
    before = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
    after = {
        "metadata": {"name": "a", "annotations": {"x/y": "1"}},
        "spec": {"containers": [{"name": "d"}]},
    }
    assert list(operations(before, after)) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"x/y": "1"}},
        {"op": "replace", "path": "/spec/containers/0/name", "value": "d"},
    ]


def test_a_truth_value_is_not_a_number() -> None:
    assert list(operations({"a": 1}, {"a": True})) == [
        {"op": "replace", "path": "/a", "value": True}
    ]
