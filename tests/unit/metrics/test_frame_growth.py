"""Details make a frame larger by at most a half of a frame before there were any."""

import random
from array import array
from collections.abc import Sequence

import pytest

from kedge.metrics.detail_windows import SIZE, DetailWindows
from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod
from kedge.metrics.frame_codec import encode, plain
from kedge.metrics.windows import DETAILS

PODS = 30
TICKS = 400
"""More than an hour, so that the windows of an hour and a day differ."""


def details(busy: int, chance: random.Random) -> bytes:
    """The row of a container for which so many details change all the time, without a pattern."""
    windows = DetailWindows(memoryview(bytearray(SIZE)))
    filled = chance.sample(range(len(DETAILS)), busy)
    usual = {number: chance.lognormvariate(5, 3) for number in filled}
    for tick in range(1000, 1000 + TICKS):
        values = [usual.get(at, 0.0) * chance.uniform(0.5, 1.5) for at in range(len(DETAILS))]
        windows.put(tick, values)
    return windows.row()


def frame(rows: Sequence[bytes]) -> Frame:
    chance = random.Random(1)
    pods = [
        FramePod(
            "default",
            f"web-{chance.getrandbits(40):010x}",
            f"{chance.getrandbits(128):032x}",
            0,
            0,
            1 + n,
            [FrameContainer("main", 0, 1 + n)],
        )
        for n in range(PODS)
    ]
    values = array("f", [chance.lognormvariate(5, 2) for _ in range((PODS + 1) * WIDTH)])
    return Frame("n1", "u", 5_000_000, 10, 0, [], pods, values, rows)


@pytest.mark.parametrize(("busy", "most"), [(0, 0.70), (4, 0.95), (8, 1.15), (len(DETAILS), 1.50)])
def test_a_frame_grows_by_at_most_a_half_though_all_details_are_busy_everywhere(
    busy: int, most: float
) -> None:
    chance = random.Random(busy)
    rows = [details(busy, chance) for _ in range(PODS + 1)]
    # Before there were details, frames were not compressed.
    growth = len(encode(frame(rows))) / len(plain(frame(())))
    print(f"{busy} busy details of each container: {growth:.2f} times the frame before details")
    assert growth <= most
