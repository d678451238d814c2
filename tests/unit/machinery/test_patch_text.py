"""The text of patched objects in errors."""

import json

from kedge.machinery import patch_text

LIVE = {"kind": "K", "apiVersion": "v1", "spec": {"b": 1, "a": {"z": 1, "y": 2}}, "c": {"q": 1}}


def test_objects_that_a_merge_patch_touches_have_their_members_in_order() -> None:
    text = patch_text.after_merge(LIVE, b'{"spec":{"n":{"y":1,"x":null,"w":[{"v":2,"u":null}]}}}')
    assert text == (
        '{"apiVersion":"v1","c":{"q":1},"kind":"K",'
        '"spec":{"a":{"z":1,"y":2},"b":1,"n":{"w":[{"v":2}],"y":1}}}'
    )


def test_a_value_that_replaces_an_object_is_quoted_as_sent() -> None:
    text = patch_text.after_merge(LIVE, b'{"spec": [{"b":1e30,"a":2.0}], "c": "<"}')
    assert json.loads(text)["spec"] == [{"a": 2.0, "b": 1e30}]
    assert '"c":"\\u003c"' in text
    assert '{"b":1e30,"a":2.0}' in text


def test_objects_on_the_path_of_a_json_patch_have_their_members_in_order() -> None:
    operation = {"op": "add", "path": "/spec/a/x", "value": {"d": 1, "c": 2}}
    text = patch_text.after_json(LIVE, json.dumps([operation]).encode())
    assert text == (
        '{"apiVersion":"v1","c":{"q":1},"kind":"K",'
        '"spec":{"a":{"x":{"d":1,"c":2},"y":2,"z":1},"b":1}}'
    )


def test_a_json_patch_of_a_list_keeps_other_items() -> None:
    live = {"b": [{"y": 1, "x": 2}, {"d": 1, "c": 2}], "a": 1}
    text = patch_text.after_json(live, b'[{"op":"add","path":"/b/1/e","value":1.50}]')
    assert text == '{"a":1,"b":[{"y":1,"x":2},{"c":2,"d":1,"e":1.50}]}'


def test_a_number_that_a_json_patch_tests_is_not_compared_again() -> None:
    operations = b'[{"op":"test","path":"/a","value":1},{"op":"replace","path":"/b","value":2.0}]'
    assert patch_text.after_json({"b": 1, "a": 1}, operations) == '{"a":1,"b":2.0}'
