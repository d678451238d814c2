import pytest

from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.pod.environment.expansion import (
    ARGUMENT_BYTES,
    TOTAL_BYTES,
    expand,
    expand_all,
    expand_strictly,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(C)", "$(C)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A $(", "$A $("),
        ("$(A", "$(A"),
        ("$(A) $(", "1 $("),
        ("$$ $( $$", "$ $( $"),
        ("$($(A)", "$($(A)"),
    ],
)
def test_references_are_replaced(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_references_do_not_become_longer_than_the_kernel_takes() -> None:
    values = {"A": "x" * 1000}
    assert len(expand("$(A)" * 130, values)) == 130_000
    with pytest.raises(ConfigFailure, match=f"longer than {ARGUMENT_BYTES - 1} bytes"):
        expand("$(A)" * 100_000, values)
    with pytest.raises(ConfigFailure, match=f"longer than {TOTAL_BYTES} bytes together"):
        expand_all(["$(A)" * 100] * 100_000, values)
    # What has no references is not ours to judge.
    assert len(expand("x" * 2 * ARGUMENT_BYTES, values)) == 2 * ARGUMENT_BYTES


def test_text_full_of_beginnings_is_read_once() -> None:
    text = "$(" * 500_000
    assert expand(text, {}) == text
    assert expand_strictly(text, {}) == text
