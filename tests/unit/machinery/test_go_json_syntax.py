"""The errors of Go's JSON scanners."""

import pytest

from kedge.machinery.go_json_syntax import older_syntax_error, syntax_error
from kedge.machinery.patience import PatienceError, on_event_loop

AGREED = [
    ("", "unexpected end of JSON input"),
    ("{", "unexpected end of JSON input"),
    ('{"a"', "unexpected end of JSON input"),
    ('{"a":"b', "unexpected end of JSON input"),
    ("nul", "unexpected end of JSON input"),
    ("1e", "unexpected end of JSON input"),
    ("x", "invalid character 'x' looking for beginning of value"),
    ("[1,]", "invalid character ']' looking for beginning of value"),
    ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
    ("{'a'}", r"invalid character '\'' looking for beginning of object key string"),
    ('{"a" 1}', "invalid character '1' after object key"),
    ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
    ("[1 2]", "invalid character '2' after array element"),
    ("  {}  x", "invalid character 'x' after top-level value"),
    ("01", "invalid character '1' after top-level value"),
    ("-x", "invalid character 'x' in numeric literal"),
    ("1.x", "invalid character 'x' after decimal point in numeric literal"),
    ("1ex", "invalid character 'x' in exponent of numeric literal"),
    ("tru}", "invalid character '}' in literal true (expecting 'e')"),
    ("\n\x00", r"invalid character '\x00' looking for beginning of value"),
]


@pytest.mark.parametrize(("text", "error"), AGREED)
def test_both_scanners_name_the_first_fault(text: str, error: str) -> None:
    assert syntax_error(text.encode()) == error
    assert older_syntax_error(text.encode()) == error


@pytest.mark.parametrize(
    ("text", "error", "older"),
    [
        ("ü", "'ü' looking for beginning of value", "'Ã' looking for beginning of value"),
        ('"\x01"', r"'\x01' in string", r"'\x01' in string literal"),
    ],
)
def test_the_older_scanner_reads_bytes_and_has_other_words(
    text: str, error: str, older: str
) -> None:
    assert syntax_error(text.encode()) == f"invalid character {error}"
    assert older_syntax_error(text.encode()) == f"invalid character {older}"


def test_scanners_name_wrong_escapes() -> None:
    assert syntax_error(rb'"\q"') == r"invalid escape sequence `\q` in string"
    assert older_syntax_error(rb'"\q"') == "invalid character 'q' in string escape code"
    unicode = r"invalid character 'x' in \u hexadecimal character escape"
    assert older_syntax_error(rb'"\u12x4"') == unicode


@pytest.mark.parametrize("text", ["[]", '{"a":{}}', ' [[],{"b":[1.5e+3,-0,"\\u00e4"]}] ', "null"])
def test_json_has_no_fault(text: str) -> None:
    assert syntax_error(text.encode()) == ""


def test_long_texts_are_not_scanned() -> None:
    assert syntax_error(b"[" * 70_000) == ""


def test_the_event_loop_does_not_scan_thousands_of_values() -> None:
    text = b"[" + b"1," * 5_000
    assert syntax_error(text) == "unexpected end of JSON input"
    with on_event_loop(), pytest.raises(PatienceError):
        syntax_error(text)
