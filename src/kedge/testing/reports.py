"""What nodes report of themselves and their pods, as tests would have it."""

from array import array
from collections.abc import Mapping

from kedge.metrics.frame import TICK, WIDTH, Frame, Measured, MeasuredPod, encode

DAY = 86400

Used = tuple[float, float]
"""Cores and bytes."""


def report(node: str, now: float, machine: Used, pods: Mapping[tuple[str, str], Used]) -> bytes:
    """The frame of a node that has used the same for two days, and so have its pods; these are
    named by namespace/name and uid."""
    tick = int(now) // TICK
    since = tick * TICK - 2 * DAY
    measured = []
    for number, (key, uid) in enumerate(pods):
        namespace, name = key.split("/")
        inside = (Measured("main", since, 1 + len(pods) + number),)
        measured.append(MeasuredPod(namespace, name, uid, since, tick, 1 + number, inside))
    rows = [machine, *pods.values(), *pods.values()]
    values = array("f", [each for row in rows for each in row * (WIDTH // 2)])
    return encode(Frame(node, "uid", tick, TICK, since, (), measured, values))
