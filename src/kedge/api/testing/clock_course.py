"""ClockCourse: how the clock of a cluster has moved so far, for the nodes that follow it."""

from collections.abc import Sequence

import msgspec

from kedge.machinery.travel_clock import ClockStretch


class ClockCourse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a node that asks for changes after a version."""

    version: str
    stretches: Sequence[ClockStretch]
