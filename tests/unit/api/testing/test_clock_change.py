"""Changes of the clock of a cluster."""

import pytest

from kedge.api.testing.clock_change import ClockChange, decoded_change
from kedge.machinery.errors import StatusError


def test_a_change() -> None:
    assert decoded_change(b'{"advance":60,"frozen":true}') == ClockChange(advance=60, frozen=True)


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"", 400), (b'{"advance":"1h"}', 400), (b'{"back":1}', 400), (b'{"advance":-1}', 422)],
)
def test_mistakes(body: bytes, code: int) -> None:
    with pytest.raises(StatusError) as caught:
        decoded_change(body)
    assert caught.value.code == code
