import time

import pytest

from kedge.machinery.patterns import compile_pattern

MATCHES = [
    (r"^[a-z]+$", ["abc"], ["abc\n", "ABC", ""]),
    (r"(?i)^abc|x$", ["ABCd", "yX"], ["b"]),
    (r"a(?i)b|c$", ["aB", "C"], ["AB"]),
    (r"(a(?i)b)c", ["aBc"], ["aBC"]),
    (r"^\p{L}+$", ["äb"], ["1"]),
    (r"^\PN$", ["a"], ["1"]),
    (r"^[\p{Lu}\d]$", ["Ä", "1"], ["ä"]),
    (r"^[[:alpha:]_]$", ["a", "_"], ["1", "ä"]),
    (r"^\Qa.b\E$", ["a.b"], ["axb"]),
    (r"^a\z", ["a"], ["a\n"]),
    (r"^\d{2,3}$", ["12"], ["1", "٣٤"]),
    (r"^[]a]$", ["]"], ["b"]),
    (r"^(?P<x>a)(?<y>b)$", ["ab"], ["a"]),
    (r"^\x{61}$", ["a"], ["b"]),
    (r"(?m)^a$", ["b\na\nc"], ["ba"]),
    (r"^(?s:.)$", ["\n"], ["aa"]),
    (r"^[a-z&&~|[]+$", ["a&[|"], ["]"]),
    (r"b", ["abc"], ["ac"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), MATCHES, ids=lambda value: str(value))
def test_a_pattern_means_what_it_means_to_go(pattern: str, good: list[str], bad: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert [text for text in good if not compiled.search(text)] == []
    assert [text for text in bad if compiled.search(text)] == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=a)b", "invalid or unsupported Perl syntax: `(?<=`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("a{1,1001}", "invalid repeat count: `{1,1001}`"),
        ("a++", "invalid nested repetition operator: `++`"),
        ("[a", "missing closing ]: `[a`"),
    ],
)
def test_what_go_refuses_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match="error parsing regexp") as refusal:
        compile_pattern(pattern)
    assert str(refusal.value) == f"error parsing regexp: {why}"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\pL{1000}", "expression too large"),
        ("a" * 70_000, "expression too large: 70000 characters"),
        ("((a{100}){100}){100}", "invalid repeat count: `{100}`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        ("\ud800", "invalid UTF-8"),
    ],
    ids=["classes", "long", "repeats", "bytes", "surrogate"],
)
def test_what_is_large_or_no_text_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match="error parsing regexp") as refusal:
        compile_pattern(pattern)
    assert str(refusal.value) == f"error parsing regexp: {why}"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(.*a){20}$", r"^(\w+\s?)*$"])
def test_matching_does_not_backtrack(pattern: str) -> None:
    begin = time.process_time()
    assert not compile_pattern(pattern).search("a" * 20_000 + "!" + "b" * 10)
    assert time.process_time() - begin < 2


def test_a_match_that_might_take_long_is_not_tried() -> None:
    with pytest.raises(OverflowError):
        compile_pattern(r"[\pL\pN]{1,60}x").timed_search("a" * 20_000)
    assert compile_pattern(r"^[\pL\pN]{1,63}$").search("äöü1")
