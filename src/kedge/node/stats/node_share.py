"""The usage of a node that shares its machine with other nodes of the cluster."""

import zlib
from collections.abc import Callable, Sequence
from typing import Final

from kedge.metrics.track import UsageReading
from kedge.node.stats.cgroup import UsageSource

LOOK_AGAIN: Final = 10
"""Readings after which nodes that have come or gone are looked for."""


class NodeShareSource:
    """The usage of a node's own pods, and an equal share of what is no pod of any node here.

    If every node reported the whole machine, all of them would be equally busy, and the scheduler
    could not prefer the node that has less to do. Fulfils UsageSource.
    """

    def __init__(
        self,
        machine: UsageSource,
        own: UsageSource,
        siblings: Callable[[], Sequence[str]],
        source_of: Callable[[str], UsageSource],
    ) -> None:
        """`siblings` returns the control groups that other nodes may have, `source_of` the source
        of one of them."""
        self._machine = machine
        self._own = own
        self._siblings = siblings
        self._source_of = source_of
        self._others: dict[str, UsageSource] = {}
        self._age = LOOK_AGAIN
        self._cpu = 0
        self.run = 1
        """A number that changes with the nodes on this machine, and with it the share."""

    def read(self) -> tuple[int, int] | None:
        if self._age >= LOOK_AGAIN:
            self._age = 0
            self._look()
        self._age += 1
        others = [each.read() for each in self._others.values()]
        if None in others:
            self._age = LOOK_AGAIN
            return None
        own = self._own.read() or (0, 0)
        whole = self._machine.read()
        if whole is None or not others:
            return whole
        pods = [own, *filter(None, others)]
        cpu, memory = (
            own[i] + max(0, whole[i] - sum(each[i] for each in pods)) // len(pods) for i in (0, 1)
        )
        # The groups are read a moment before the machine, so the share may seem to shrink.
        self._cpu = max(self._cpu, cpu)
        return UsageReading(self._cpu, memory)

    def _look(self) -> None:
        """Find the other nodes of this machine: those whose control group exists."""
        wanted = self._siblings()
        for path in self._others.keys() - set(wanted):
            self._others.pop(path).close()
        for path in wanted:
            source = self._others.get(path) or self._source_of(path)
            if source.read() is None:
                self._others.pop(path, None)
                source.close()
            else:
                self._others[path] = source
        names = ",".join(sorted(self._others))
        run = 1 + zlib.crc32(names.encode()) if names else 1
        if run != self.run:
            self.run, self._cpu = run, 0

    def close(self) -> None:
        for source in (self._machine, self._own, *self._others.values()):
            source.close()
