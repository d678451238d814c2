"""NodeRange: how many nodes `kedge up` runs, as `3` or `1..5`."""

import argparse
import re
from typing import Final, NamedTuple

MOST_NODES: Final = 100
"""The most nodes of a range; each takes an agent and a supervisor."""
_RANGE: Final = re.compile(r"([0-9]{1,4})\.\.([0-9]{1,4})")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class NodeRange(NamedTuple):
    """The least and the most nodes; equal if the number is fixed."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}..{self.most}"


def parse_node_range(value: str) -> NodeRange:
    """Read `3` or `1..5`; raises argparse.ArgumentTypeError."""
    if _NUMBER.fullmatch(value):
        return NodeRange(int(value), int(value))
    found = _RANGE.fullmatch(value)
    if not found:
        raise argparse.ArgumentTypeError(
            f'"{value}" is neither a number from 0 on nor a range such as 1..5'
        )
    least, most = map(int, found.groups())
    if not 1 <= least <= most <= MOST_NODES:
        raise argparse.ArgumentTypeError(
            f'"{value}" is not a range of nodes: from at least 1, up to at most {MOST_NODES}'
        )
    return NodeRange(least, most)
