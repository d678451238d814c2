"""YAML is read within limits that are counted while reading, and written as kubectl prints it."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery import yaml_text

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.text(st.sampled_from("ab \n\t:#-?,[]{}&*!|>'\"%@`~=<0123.eE_yn/\\+"), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_what_is_written_is_read_again_by_this_reader_and_by_others(value: Any) -> None:
    text = yaml_text.write(value)
    assert yaml_text.read(text) == value
    assert yaml.safe_load(text) == value


class _Folding(yaml.CSafeDumper):
    """libyaml's rules for line breaks, with this writer's choice of quotes."""


def _with_our_quotes(dumper: Any, value: str) -> yaml.Node:
    mark = yaml_text.write(value)[0]
    return yaml.ScalarNode("tag:yaml.org,2002:str", value, style=mark if mark in "'\"" else None)


_Folding.add_representer(str, _with_our_quotes)
WORDS = st.sampled_from(["a", "lorem", "ipsum-dolor", "x:y", "#c", "'q'", "", " ", "\t", "w" * 90])


@given(st.lists(WORDS, min_size=10, max_size=60).map(" ".join), st.integers(1, 40))
def test_long_text_is_broken_where_libyaml_breaks_it(text: str, width: int) -> None:
    document = {"k": {"n" * width: text, "list": [text, {"m": text}]}}
    assert yaml_text.read(yaml_text.write(document)) == document
    assert yaml_text.write(document) == yaml.dump(document, Dumper=_Folding, allow_unicode=True)


def test_text_is_laid_out_as_kubectl_does_it() -> None:
    document = {
        "b": [{"x": "1", "a": [[1, 2], {}]}, "plain text", "a: b", ""],
        "a": {"lines": "one\ntwo\n", "end": "one\n\ntwo", "yes": "yes"},
    }
    assert yaml_text.write(document) == (
        "a:\n"
        "  end: |-\n    one\n\n    two\n"
        "  lines: |\n    one\n    two\n"
        '  "yes": "yes"\n'
        "b:\n"
        "- a:\n  - - 1\n    - 2\n  - {}\n"
        '  x: "1"\n'
        "- plain text\n- 'a: b'\n- \"\"\n"
    )


def merges(levels: int) -> bytes:
    """Each level merges the one before ten times."""
    lines = [b"a0: &a0 {a: 1, b: 2}"]
    for i in range(1, levels + 1):
        below = b",".join([b"{<<: *a%d}" % (i - 1)] * 10)
        lines.append(b"a%d: &a%d {<<: [%b], k%d: *a%d}" % (i, i, below, i, i - 1))
    return b"\n".join(lines)


def aliases(levels: int) -> bytes:
    lines = [b"a0: &a0 [x]"]
    lines += [
        b"a%d: &a%d [%b]" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, levels)
    ]
    return b"\n".join(lines)


def directives() -> bytes:
    return b"".join(b"%%TAG !a%d! b\n" % i for i in range(50_000)) + b"--- a"


WIDE = b"a: &a {" + b",".join(b"k%d: 1" % i for i in range(10_000)) + b"}\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[" * 100_000, "max depth"),
        (b"- " * 100_000, "max depth"),
        (b"{a: " * 100_000, "max depth"),
        (b"? " * 100_000, "cannot be a key"),
        (b"".join(b" " * i + b"a:\n" for i in range(2000)), "max depth"),
        (b"a: &a " + b"[" * 60 + b"]" * 60 + b"\nb: " + b"[" * 60 + b"*a" + b"]" * 60, "max depth"),
        (aliases(30), "excessive aliasing"),
        (merges(30), "excessive aliasing"),
        (WIDE + b"b: {<<: [" + b",".join([b"*a"] * 100_000) + b"]}", "excessive aliasing"),
        (b"[" + b"a," * 1_500_000 + b"]", "more than 262144 values"),
        (directives(), "%TAG"),
        (b"a: &a [*a]", "contains itself"),
        (b"a: &a {<<: *a}", "contains itself"),
        (b"a: " + b"9" * 1_000_000, "out of range"),
        (b"a: 1e999999", "unsupported value"),
        (b"a: .nan", "unsupported value"),
        (b"a: \xff", "invalid text encoding"),
        (b"a: !!python/object:os.system b", "cannot represent"),
    ],
)
def test_hostile_text_is_refused_soon(data: bytes, why: str) -> None:
    begin = time.process_time()
    with pytest.raises(yaml_text.YamlError, match=why):
        yaml_text.read(data)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    "make",
    [
        lambda n: b"\n".join(b"- &a%d a" % i for i in range(n)),
        lambda n: b"a: &a 1\nb:\n" + b"- *a\n" * n,
        lambda n: b"".join(b"&a%d [" % i for i in range(99)) + b"1," * n + b"]" * 99,
        lambda n: b"\n".join(b"? k%d" % i for i in range(n)),
        lambda n: b"a: " + b'"\\n' * n,
        lambda n: b"a: >\n" + b" \n" * n,
    ],
    ids=["anchors", "aliases", "nested anchors", "keys without values", "escapes", "folded"],
)
def test_time_is_proportional_to_the_text(make: Callable[[int], bytes]) -> None:
    def seconds(n: int) -> float:
        data = make(n)
        begin = time.process_time()
        with contextlib.suppress(yaml_text.YamlError):
            yaml_text.read(data)
        return time.process_time() - begin

    small = min(seconds(10_000) for _ in range(3))
    assert seconds(80_000) < 8 * 3 * max(small, 0.002)


def test_merged_and_aliased_values_are_copies() -> None:
    read = yaml_text.read("a: &a {x: {v: [1]}}\nb: *a\nc: {<<: *a, z: 1}\n")
    read["b"]["x"]["v"].append(2)
    read["c"]["x"]["v"].append(3)
    assert read == {
        "a": {"x": {"v": [1]}},
        "b": {"x": {"v": [1, 2]}},
        "c": {"x": {"v": [1, 3]}, "z": 1},
    }


def test_written_keys_win_over_merged_ones_and_earlier_sources_over_later() -> None:
    text = "p: &p {x: 1, k: 1}\nq: &q {x: 2, l: 2}\nr: {<<: [*p, *q], k: 3}\n"
    assert yaml_text.read(text)["r"] == {"k": 3, "x": 1, "l": 2}
