"""Usage reports of nodes and their pods, for tests."""

from array import array
from collections.abc import Mapping

from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod
from kedge.metrics.frame_codec import encode
from kedge.metrics.windows import TICK_SECONDS

DAY = 86400

Used = tuple[float, float]
"""Cores and bytes."""


def report(node: str, now: float, machine: Used, pods: Mapping[tuple[str, str], Used]) -> bytes:
    """The frame of a node that has used the same for two days, and so have its pods; these are
    named by namespace/name and uid."""
    tick = int(now) // TICK_SECONDS
    since = tick * TICK_SECONDS - 2 * DAY
    measured = []
    for number, (key, uid) in enumerate(pods):
        namespace, name = key.split("/")
        inside = (FrameContainer("main", since, 1 + len(pods) + number),)
        measured.append(FramePod(namespace, name, uid, since, tick, 1 + number, inside))
    rows = [machine, *pods.values(), *pods.values()]
    values = array("f", [each for row in rows for each in row * (WIDTH // 2)])
    return encode(Frame(node, "uid", tick, TICK_SECONDS, since, (), measured, values))
