"""Row: the numbers of all windows of one thing, in the order of a frame."""

from array import array

from kedge.metrics.frame import UNKNOWN, WIDTH
from kedge.metrics.series import WINDOWS, Series


def row(cpu: Series, memory: Series) -> "array[float]":
    """What two series say; what is not known is said to be so."""
    numbers = array("f", [UNKNOWN]) * WIDTH
    at = 0
    for name in WINDOWS:
        used, held = cpu.window(name), memory.window(name)
        if used is not None:
            numbers[at], numbers[at + 2], numbers[at + 4] = used
        if held is not None:
            numbers[at + 1], numbers[at + 3], numbers[at + 5] = held
        at += 6
    return numbers
