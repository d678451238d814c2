"""Bodies: JSON and YAML with all that clients get wrong in them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.apiserver import body
from kedge.machinery.errors import StatusError

KEYS = st.text(st.sampled_from('ab:"\\ \t/é'), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES), st.booleans(), st.sampled_from([(",", ":"), (", ", " : ")]))
def test_json_without_repeated_keys_has_no_duplicates(
    document: dict[str, Any], escaped: bool, separators: tuple[str, str]
) -> None:
    text = json.dumps(document, ensure_ascii=escaped, separators=separators)
    read = body.read_json(text.encode())
    assert read.document == document
    assert read.duplicates == []


@given(
    st.dictionaries(KEYS, VALUES),
    VALUES,
    VALUES,
    st.sampled_from([":", " : ", "\n:"]),
    st.booleans(),
)
def test_a_repeated_key_is_always_noticed(
    document: dict[str, Any], first: Any, second: Any, colon: str, escaped: bool
) -> None:
    one, other, rest = (
        json.dumps(each, ensure_ascii=escaped) for each in (first, second, document)
    )
    twice = f'{{"k"{colon}{one},"k"{colon}{other}}}'
    text = f'{{"inner":{twice},"rest":{rest}}}'
    read = body.read_json(text.encode())
    assert read.duplicates == ['duplicate field "inner.k"']
    assert read.document["inner"] == {"k": second}


def test_a_hidden_colon_does_not_hide_a_repeated_key() -> None:
    text = b'{"a":1,"a":2,"b" :"c\\u003a"}'
    assert body.read_json(text).duplicates == ['duplicate field "a"']


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
    ],
)
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        body.read_json(data)
    assert caught.value.code == 400


@pytest.mark.parametrize("depth", [300, 900, 5000, 100_000])
def test_bottomless_bodies_are_refused(depth: int) -> None:
    for text in (
        b'{"a":' * depth + b"1" + b"}" * depth,
        b'{"a":' + b"[" * depth + b"]" * depth + b"}",
        b'{"k":1,"k":' + b"[" * depth + b"]" * depth + b"}",
    ):
        with pytest.raises(StatusError) as caught:
            body.read_json(text)
        assert caught.value.code == 400
    with pytest.raises(StatusError):
        body.read_yaml(b"a: " + b"[" * min(depth, 5000) + b"]" * min(depth, 5000))


def test_yaml_reads_as_kubernetes_reads_it() -> None:
    text = b"""
    text: 12:30:45
    date: 2001-01-01
    stamp: 2001-01-01T00:00:00Z
    octal: 0644
    modern: 0o644
    hex: 0x1F
    float: 1.5
    power: 1e3
    yes: on
    nothing: ~
    12: number key
    anchor: &a {x: 1}
    alias: *a
    merged: {<<: *a, z: 2}
    y: n
    """
    assert body.read_yaml(text).document == {
        "text": "12:30:45",
        "date": "2001-01-01",
        "stamp": "2001-01-01T00:00:00Z",
        "octal": 420,
        "modern": 420,
        "hex": 31,
        "float": 1.5,
        "power": 1000.0,
        "true": False,
        "nothing": None,
        "12": "number key",
        "anchor": {"x": 1},
        "alias": {"x": 1},
        "merged": {"x": 1, "z": 2},
    }


def test_repeated_keys_in_yaml_are_named_with_their_line() -> None:
    read = body.read_yaml(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert sorted(read.duplicates) == [
        'line 4: key "c" already set in map',
        'line 5: key "a" already set in map',
    ]
    assert read.document == {"a": 3, "b": {"c": 2}}


@pytest.mark.parametrize(
    "data",
    [
        b"a: [",
        b"- a",
        b"a: !!python/object:os.system x",
        b"a: !!binary aGk=",
        b"a: !!timestamp 2001-01-01",
        b"a: !!timestamp 2001-99-99",
        b"a: !!set {x}",
        b"a: .nan",
        b"a: !!float .inf",
        b"? {x: 1}\n: 2",
        b"? [x]\n: 2",
        b"a: &x [*x]",
        b"a: 1\n---\nb: 2",
        b"\x00",
        b"\xff\xfe\xff",
        b"a: !!int x",
        b"a: " + b"9" * 5000,
        b"a: *missing",
    ],
)
def test_what_has_no_json_form_is_refused(data: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        body.read_yaml(data)
    assert caught.value.code == 400


def test_aliases_cannot_be_piled_up() -> None:
    lines = [b"a0: &a0 [x]"]
    lines += [b"a%d: &a%d [%b]" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 10)]
    with pytest.raises(StatusError) as caught:
        body.read_yaml(b"\n".join(lines))
    assert "aliasing" in caught.value.message


@given(
    st.binary(max_size=60) | st.text(st.sampled_from("ab:{}[]&*!-?\n |>'\"#%@,0x1.~<"), max_size=40)
)
def test_no_bytes_are_worse_than_a_bad_request(data: bytes | str) -> None:
    raw = data if isinstance(data, bytes) else data.encode()
    for content_type in ("", "application/yaml", "application/vnd.kubernetes.protobuf"):
        for sent in (raw, b"k8s\x00" + raw):
            assert outcome(content_type, sent) in (0, 400)


def outcome(content_type: str, data: bytes) -> int:
    try:
        body.read(content_type, data)
    except StatusError as error:
        return error.code
    return 0


def test_an_unknown_type_is_415_and_names_those_that_are_known() -> None:
    with pytest.raises(StatusError) as caught:
        body.read("text/html", b"{}")
    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")
    assert "application/json" in caught.value.message
    assert body.read("application/json; charset=utf-8", b'{"a":1}').document == {"a": 1}


def test_more_lists_than_are_decoded_at_once_are_refused() -> None:
    with pytest.raises(StatusError, match="more than 300000 lists and objects") as refused:
        body.read_json(b'{"data": [' + b"[]," * 300_000 + b"1]}")
    assert refused.value.code == 413


def test_brackets_in_a_string_are_no_lists() -> None:
    text = "[" * 400_000
    assert body.read_json(json.dumps({"data": text}).encode()).document == {"data": text}
