"""Fields that only the server sets."""

import pytest

from kedge.apiserver.prepare import is_version


@pytest.mark.parametrize("text", ["1", "007", "0" * 5000 + "7", str(2**64 - 1)])
def test_a_number_of_64_bits_is_a_version(text: str) -> None:
    assert is_version(text)


@pytest.mark.parametrize("text", ["", "0", "000", "-1", "a", "\u0661", str(2**64), "9" * 5000])
def test_any_other_text_is_no_version(text: str) -> None:
    assert not is_version(text)
