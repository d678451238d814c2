"""Texts that users write inside objects: each is read, or refused with its own error."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kedge.machinery.cel import CelCondition, CelError, uses
from kedge.machinery.durations import parse_duration, parse_time
from kedge.machinery.jsonpath import parse_path
from kedge.machinery.quantity import Quantity
from kedge.machinery.selectors import parse_fields, parse_labels
from kedge.node.images.mapping import ImageMappingRule
from kedge.node.images.reference import ImageReference

DOCUMENT = {"a": [{"b": 1, "c": "x"}, {"b": 2}, None], "metadata": {"name": "x"}}


def texts(alphabet: str) -> st.SearchStrategy[str]:
    """Texts that are nearly of a language, and any others."""
    near = st.text(st.sampled_from(alphabet), max_size=60)
    return near | st.text(max_size=60) | near.map(lambda text: text[:20] * 100)


def read_path(text: str) -> None:
    parse_path(text).find(DOCUMENT)


PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "quantity": (Quantity.parse, "0123456789.+-eEinumkKMGTPi"),
    "duration": (parse_duration, "0123456789.-+hmsuµn"),
    "time": (parse_time, "0123456789-:.TZ+ "),
    "label selector": (parse_labels, "abc/.-_0=!,() in notin<>"),
    "field selector": (parse_fields, "abc.=!,\\ "),
    "JSONPath": (read_path, "$@.[]{}()?*:,'\"ab01=!<>&| -"),
    "image": (ImageReference.parse, "abcAB/:@.-_0sha256"),
    "image rule": (ImageMappingRule.parse, "ab*:/=?[]host "),
}


@pytest.mark.parametrize("language", PARSERS)
@given(data=st.data())
def test_a_text_is_read_or_refused_with_a_value_error(language: str, data: st.DataObject) -> None:
    parse, alphabet = PARSERS[language]
    text = data.draw(texts(alphabet))
    with contextlib.suppress(ValueError):
        parse(text)


@given(texts("0123456789.+-eEinumkKMGTPi"))
@example("1e1000000000")
@example("0." + "0" * 10_000 + "1")
@example("9" * 100_000)
def test_what_is_printed_of_a_quantity_reads_as_the_same_quantity(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except ValueError:
        return
    assert Quantity.parse(str(quantity)) == quantity


@given(texts("object.ab()[]{}:,'\"01=!<>&|?+-*/% \\in"))
@example("[1,2,3].all(x, [1,2,3].all(y, [1,2,3].all(z, x == y && y == z)))")
@example("'a'.matches('(a+)+$')")
def test_an_expression_holds_or_is_refused_with_a_cel_error(text: str) -> None:
    with contextlib.suppress(CelError):
        CelCondition(text, uses.match_conditions()).holds({"object": DOCUMENT})
