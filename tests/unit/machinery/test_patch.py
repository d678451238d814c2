import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery import patch
from kedge.machinery.patch import (
    MAX_OPERATIONS,
    PatchFailed,
    PatchMalformed,
    PatchTooLong,
    apply_json,
    apply_merge,
    diff_merge,
    printed,
    same,
)

scalars = st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.floats(-1, 1)
names = st.sampled_from(["a", "b", "c", "d/e", "f~g", "", "-"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
documents = st.dictionaries(names, values, max_size=4)


def pointer(*tokens: str) -> str:
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({}, {"op": "add", "path": "/a", "value": 1}, {"a": 1}),
        ({"a": 1}, {"op": "add", "path": "/a", "value": 2}, {"a": 2}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-1", "value": 2}, {"a": [1, 2]}),
        ({"a": {"x/y": 1}}, {"op": "add", "path": "/a/x~1y", "value": 2}, {"a": {"x/y": 2}}),
        ({"a": {"x~y": 1}}, {"op": "remove", "path": "/a/x~0y"}, {"a": {}}),
        ({"a": [1, 2, 3]}, {"op": "remove", "path": "/a/0"}, {"a": [2, 3]}),
        ({"a": [1, 2, 3]}, {"op": "remove", "path": "/a/-1"}, {"a": [1, 2]}),
        ({"a": 1}, {"op": "replace", "path": "/a", "value": [2]}, {"a": [2]}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}),
        ({"a": 1}, {"op": "replace", "path": "", "value": {"b": 2}}, {"b": 2}),
        ({"a": 1}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}),
        ({"a": [1, 2, 3]}, {"op": "move", "from": "/a/0", "path": "/a/2"}, {"a": [2, 3, 1]}),
        (
            {"a": {"b": 1}},
            {"op": "copy", "from": "/a", "path": "/c"},
            {"a": {"b": 1}, "c": {"b": 1}},
        ),
        (
            {"a": [{"b": 1}]},
            {"op": "copy", "from": "/a/0", "path": "/a/-"},
            {"a": [{"b": 1}, {"b": 1}]},
        ),
        ({"a": [[1], [2]]}, {"op": "add", "path": "/a/1/0", "value": 3}, {"a": [[1], [3, 2]]}),
        ({"a": [1]}, {"op": "test", "path": "/a/0", "value": 1}, {"a": [1]}),
        ({"a": 1}, {"op": "test", "path": "", "value": {"a": 1}}, {"a": 1}),
        ({"a": None}, {"op": "test", "path": "/a", "value": None}, {"a": None}),
        ({"a": {"b": [1]}}, {"op": "test", "path": "/a", "value": {"b": [1]}}, {"a": {"b": [1]}}),
    ],
)
def test_one_operation_edits_the_document(
    document: Any, operation: dict[str, Any], expected: Any
) -> None:
    before = copy.deepcopy(document)
    assert apply_json(document, [operation]) == expected
    assert document == before


def test_replace_of_a_missing_map_key_sets_it_as_kubernetes_does() -> None:
    replace = {"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}
    assert apply_json({"metadata": {}}, [replace]) == {"metadata": {"labels": {"a": "b"}}}


def test_a_test_for_null_accepts_a_missing_key() -> None:
    assert apply_json({}, [{"op": "test", "path": "/a", "value": None}]) == {}


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (
            {"op": "remove", "path": "/metadata/labels/x"},
            "error in remove for path: '/metadata/labels/x': "
            "Unable to remove nonexistent key: x: missing value",
        ),
        (
            {"op": "remove", "path": "/spec/x"},
            'remove operation does not apply: doc is missing path: "/spec/x": missing value',
        ),
        (
            {"op": "add", "path": "/spec/x", "value": 1},
            'add operation does not apply: doc is missing path: "/spec/x": missing value',
        ),
        (
            {"op": "add", "path": "/list/3", "value": 1},
            "error in add for path: '/list/3': "
            "Unable to access invalid index: 3: invalid index referenced",
        ),
        (
            {"op": "replace", "path": "/list/5", "value": 1},
            "replace operation does not apply: doc is missing key: /list/5: missing value",
        ),
        (
            {"op": "test", "path": "/metadata/resourceVersion", "value": "8"},
            "testing value /metadata/resourceVersion failed: test failed",
        ),
        (
            {"op": "test", "path": "/one", "value": True},
            "testing value /one failed: test failed",
        ),
        (
            {"op": "copy", "from": "/spec/x", "path": "/y"},
            "copy operation does not apply: doc is missing from path: /spec/x: missing value",
        ),
        (
            {"op": "copy", "from": "/list/7", "path": "/y"},
            "error in copy for from: '/list/7': "
            "Unable to access invalid index: 7: invalid index referenced",
        ),
        (
            {"op": "copy", "from": "/one", "path": "/spec/x"},
            "copy operation does not apply: doc is missing destination path: /spec/x:"
            " missing value",
        ),
        (
            {"op": "copy", "from": "/one", "path": "/list/x"},
            "error in copy for path: '/list/x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            {"op": "move", "from": "/spec/x", "path": "/y"},
            "move operation does not apply: doc is missing from path: /spec/x: missing value",
        ),
        (
            {"op": "move", "from": "/metadata/x", "path": "/y"},
            "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            {"op": "move", "from": "/one", "path": "/spec/x"},
            "move operation does not apply: doc is missing destination path: /spec/x:"
            " missing value",
        ),
        (
            {"op": "replace", "path": "/spec/x", "value": 1},
            "replace operation does not apply: doc is missing path: /spec/x: missing value",
        ),
        (
            {"op": "replace", "path": "", "value": 1},
            "replace operation value must be object or array",
        ),
        (
            {"op": "add", "path": "/one/x", "value": 1},
            'add operation does not apply: doc is missing path: "/one/x": missing value',
        ),
        (
            {"op": "add", "path": "/list/9/x", "value": 1},
            'add operation does not apply: doc is missing path: "/list/9/x": missing value',
        ),
        (
            {"op": "add", "path": "one", "value": 1},
            'add operation does not apply: doc is missing path: "one": missing value',
        ),
        (
            {"op": "add", "path": "/list/1st", "value": 1},
            "error in add for path: '/list/1st': strconv.Atoi: parsing \"1st\": invalid syntax",
        ),
        (
            {"op": "test", "path": "/spec/x", "value": 1},
            "test operation does not apply: is missing path: /spec/x: missing value",
        ),
        (
            {"op": "test", "path": "/list/7", "value": 1},
            "error in test for path: '/list/7': "
            "Unable to access invalid index: 7: invalid index referenced",
        ),
        ({"op": "test", "path": "", "value": {}}, "testing value  failed: test failed"),
        ({"op": "merge", "path": "/one"}, "Unexpected kind: merge"),
        ({"op": 7, "path": "/one"}, "Unexpected kind: unknown"),
        ({"path": "/one"}, "Unexpected kind: unknown"),
        ({"op": "remove"}, "remove operation failed to decode path: missing value"),
        ({"op": "replace"}, "replace operation failed to decode path: missing value"),
        ({"op": "test"}, "test operation failed to decode path: missing value"),
        ({"op": "move", "path": "/a"}, "move operation failed to decode from: missing value"),
        ({"op": "move", "from": "/one"}, "move operation failed to decode path: missing value"),
        ({"op": "copy", "path": "/a"}, "copy operation failed to decode from: missing value"),
        ({"op": "copy", "from": "/one"}, "copy operation failed to decode path: missing value"),
        ({"op": "add", "value": 1}, "add operation failed to decode path: missing value"),
    ],
)
def test_an_operation_that_does_not_fit_fails(operation: dict[str, Any], message: str) -> None:
    document = {"metadata": {"labels": {}, "resourceVersion": "7"}, "list": [0, 1], "one": 1}
    with pytest.raises(PatchFailed) as failure:
        apply_json(document, [operation])
    assert failure.value.message == message
    assert failure.value.code == 422


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ({"op": "add"}, "a JSON patch must be a list of operations"),
        (None, "a JSON patch must be a list of operations"),
        (["add"], "every operation of a JSON patch must be an object"),
        (
            [{"op": "test", "path": "", "value": {}}, "add"],
            "every operation of a JSON patch must be an object",
        ),
    ],
)
def test_what_is_no_list_of_operations_is_malformed(operations: Any, message: str) -> None:
    with pytest.raises(PatchMalformed) as refusal:
        apply_json({}, operations)
    assert refusal.value.message == message


def test_too_many_operations_are_refused() -> None:
    add = {"op": "add", "path": "/a", "value": 1}
    with pytest.raises(
        PatchTooLong, match="maximum operations in a JSON patch is 10000, got 10001"
    ):
        apply_json({}, [add] * (MAX_OPERATIONS + 1))
    assert apply_json({}, [add] * MAX_OPERATIONS) == {"a": 1}


def test_copies_that_add_up_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "MAX_COPIED", 12)
    copies = [{"op": "copy", "from": "/a", "path": f"/{name}"} for name in "bcd"]
    assert apply_json({"a": "xy"}, copies)["d"] == "xy"
    with pytest.raises(
        PatchTooLong, match=r"^the copies in a JSON patch add up to more than 12 by"
    ):
        apply_json({"a": "xyz"}, copies)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/0", "value": 0},
        {"op": "add", "path": "/a/1", "value": 0},
        {"op": "remove", "path": "/a/0"},
        {"op": "remove", "path": "/a/1"},
    ],
)
def test_items_that_are_shifted_too_far_are_refused(
    monkeypatch: pytest.MonkeyPatch, operation: dict[str, Any]
) -> None:
    growing = operation["op"] == "add"
    document = {"a": [1, 2] if growing else [1, 2, 3]}
    needed = sum(len(document["a"]) + (n if growing else -n) for n in range(2))
    needed -= 2 * int(operation["path"][-1])
    monkeypatch.setattr(patch, "MAX_SHIFTED", needed)
    apply_json(document, [operation] * 2)
    monkeypatch.setattr(patch, "MAX_SHIFTED", needed - 1)
    with pytest.raises(PatchTooLong, match=r"^a JSON patch may not shift items by more than "):
        apply_json(document, [operation] * 2)


def test_later_operations_leave_the_input_and_the_values_of_earlier_ones_alone() -> None:
    value = {"deep": {"n": 1}}
    document = {"a": {"b": {"c": 1}}}
    operations = [
        {"op": "add", "path": "/x", "value": value},
        {"op": "copy", "from": "/a", "path": "/y"},
        {"op": "replace", "path": "/x/deep/n", "value": 2},
        {"op": "replace", "path": "/y/b/c", "value": 3},
        {"op": "move", "from": "/y", "path": "/z"},
    ]
    assert apply_json(document, operations) == {
        "a": {"b": {"c": 1}},
        "x": {"deep": {"n": 2}},
        "z": {"b": {"c": 3}},
    }
    assert document == {"a": {"b": {"c": 1}}}
    assert value == {"deep": {"n": 1}}


@given(documents, names, values)
def test_what_was_added_passes_a_test_and_can_be_removed(
    document: dict[str, Any], name: str, value: Any
) -> None:
    path = pointer(name)
    added = apply_json(
        document,
        [{"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}],
    )
    rest = {key: inner for key, inner in document.items() if key != name}
    assert same(apply_json(added, [{"op": "remove", "path": path}]), rest)


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_the_examples_of_the_rfc(
    document: Any, patch: Any, expected: Any
) -> None:
    before = copy.deepcopy(document)
    assert apply_merge(document, patch) == expected
    assert document == before


def test_a_merge_patch_that_is_no_object_is_malformed() -> None:
    with pytest.raises(PatchMalformed, match=r"^Invalid JSON Patch$"):
        apply_merge({}, ["a"])


@given(documents, documents)
def test_the_difference_applied_to_one_document_gives_the_other(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    assert same(apply_merge(a, diff_merge(a, b)), b)


@given(documents)
def test_equal_documents_differ_by_nothing(a: dict[str, Any]) -> None:
    assert diff_merge(a, copy.deepcopy(a)) == {}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"x": 1}, {"x": 2}),
        ({"x": 1}, {"y": 1}),
        ({"x": 1}, {"x": 1, "y": 1}),
        ([1], [2]),
        ([1], [1, 2]),
        (True, 1),
        (1, 1.0),
        (None, False),
    ],
)
def test_values_that_json_tells_apart_are_not_the_same(a: Any, b: Any) -> None:
    assert not same(a, b)
    assert not same(b, a)
    assert not same({"in": [a]}, {"in": [b]})
    assert same(a, copy.deepcopy(a))


def test_values_are_quoted_as_go_prints_them() -> None:
    value = {"b": [1, True, False, None, "x y"], "a": {"c": 1.5, "d": 2.0}}
    assert printed(value) == "map[a:map[c:1.5 d:2] b:[1 true false <nil> x y]]"
