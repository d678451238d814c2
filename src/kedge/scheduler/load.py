"""Load: the measured and the expected usage of a node."""

from typing import NamedTuple


class CpuAndMemory(NamedTuple):
    """An amount of cpu, in millicores, and of memory, in bytes."""

    cpu: int
    memory: int


class Load:
    """The load of one node at one moment; computed again after each change of the node."""

    __slots__ = (
        "expected",
        "known",
        "measured",
        "now",
        "pods",
        "usual",
        "with_now",
        "with_usual",
    )

    def __init__(
        self,
        *,
        measured: bool,
        now: CpuAndMemory,
        expected: CpuAndMemory,
        usual: CpuAndMemory,
        pods: int,
        known: int,
    ) -> None:
        self.measured = measured
        """Whether the node itself was; else `now` is what is known of its pods."""
        self.now = now
        """The current usage."""
        self.expected = expected
        """The expected usage of new pods that are not measured yet."""
        self.usual = usual
        """The usual usage of the pods, measured over the day or expected."""
        self.pods = pods
        self.known = known
        """How many of them were measured."""
        self.with_now: dict[CpuAndMemory, int] = {}
        """How full the node would be, by what a pod is expected to add; likewise `with_usual`."""
        self.with_usual: dict[CpuAndMemory, int] = {}

    def at(self, now: CpuAndMemory) -> "Load":
        """The same pods, while the node was measured to use something else."""
        load = Load(
            measured=True,
            now=now,
            expected=self.expected,
            usual=self.usual,
            pods=self.pods,
            known=self.known,
        )
        load.with_usual = self.with_usual
        return load
