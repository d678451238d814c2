"""The weight of regular expressions."""

from time import thread_time

import pytest

from kedge.machinery.pattern_weight import unicode_classes
from kedge.machinery.patterns import compile_pattern


@pytest.mark.parametrize(
    ("pattern", "classes"),
    [
        ("", 0),
        ("a{3}[b-c]*", 0),
        (r"\pL", 1),
        (r"\\pL", 0),
        (r"[\pL\pN]{1,63}", 126),
        (r"(\pL|\pN){200}", 400),
        (r"((\pL{2}x){3}y)", 6),
        (r"(\p{Greek}){2,}", 2),
        (r"[]\pL]{2}\PN", 3),
        (r"\pL{2}{3}", 6),
        (")(", 0),
        ("[", 0),
        ("(\\", 0),
        (r"\pL*{", 1),
    ],
)
def test_classes_are_counted_as_often_as_they_are_repeated(pattern: str, classes: int) -> None:
    assert unicode_classes(pattern) == classes


@pytest.mark.parametrize(
    "pattern", [r"(\pL|\pN){200}", r"\pL" * 2000, "a?" * 20_000, r"((\pL{30}){30}){30}"]
)
def test_a_pattern_that_takes_long_to_compile_is_refused(pattern: str) -> None:
    begun = thread_time()
    with pytest.raises(ValueError, match="expression too large"):
        compile_pattern(pattern)
    assert thread_time() - begun < 0.5  # half as much as the least of them would take, or less


def test_names_in_all_languages_are_accepted() -> None:
    compile_pattern(r"^([\pL\pN]{1,63}\.)*[\pL\pN]{1,63}$")
