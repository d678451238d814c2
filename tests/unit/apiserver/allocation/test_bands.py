"""Random choice in two bands."""

from random import Random

import pytest

from kedge.apiserver.allocation.bands import draw, lower_band


@pytest.mark.parametrize(
    ("size", "part", "most", "expected"),
    [
        (65536, 16, 256, 256),  # the cluster IPs of a /16
        (256, 16, 256, 16),
        (4096, 16, 256, 256),
        (1024, 16, 256, 64),
        (16, 16, 256, 0),
        (8, 16, 256, 0),
        (2768, 32, 128, 86),  # the default node ports
        (65535, 32, 128, 128),
        (20, 32, 128, 16),
    ],
)
def test_the_lower_band_is_upstreams(size: int, part: int, most: int, expected: int) -> None:
    assert lower_band(size, part=part, most=most) == expected


def test_the_upper_band_is_used_up_first() -> None:
    taken: set[int] = set()
    drawn = []
    while (index := draw(20, 5, taken.__contains__, Random(1))) is not None:
        taken.add(index)
        drawn.append(index)
    assert sorted(drawn[:15]) == list(range(5, 20))
    assert sorted(drawn[15:]) == list(range(5))


def test_the_choice_is_random() -> None:
    random = Random(1)
    assert len({draw(1000, 100, lambda _: False, random) for _ in range(20)}) > 10


def test_nothing_comes_from_an_empty_range() -> None:
    assert draw(0, 0, lambda _: False, Random(1)) is None
