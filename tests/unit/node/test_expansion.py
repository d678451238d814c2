import pytest

from kedge.node.expansion import expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(C)", "$(C)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A $(", "$A $("),
        ("$(A", "$(A"),
    ],
)
def test_references_are_replaced(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected
