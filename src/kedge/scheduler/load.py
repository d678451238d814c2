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
        "pods_cpu",
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
        pods_cpu: int,
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
        """The usual usage of the pods, measured or expected."""
        self.pods_cpu = pods_cpu
        """The current cpu usage of the measured pods."""
        self.pods = pods
        self.known = known
        """How many of them were measured."""
        self.with_now: dict[CpuAndMemory, int] = {}
        """How full the node would be, by what a pod is expected to add; likewise `with_usual`."""
        self.with_usual: dict[CpuAndMemory, int] = {}

    @property
    def other_cpu(self) -> int:
        """The current cpu usage of all but measured pods."""
        return max(self.now.cpu - self.pods_cpu, 0)

    def at(self, now: CpuAndMemory) -> "Load":
        """The same pods, while the node was measured to use something else."""
        return self._changed(measured=True, now=now, pods_cpu=self.pods_cpu)

    def with_more_pods_cpu(self, change: int) -> "Load":
        """The same pods, while one uses more now, or less, and as much as ever in the long run."""
        pods_cpu = self.pods_cpu + change
        return self._changed(measured=self.measured, now=self.now, pods_cpu=pods_cpu)

    def _changed(self, *, measured: bool, now: CpuAndMemory, pods_cpu: int) -> "Load":
        # A new one: records of decisions keep the one that they were made with.
        load = Load(
            measured=measured,
            now=now,
            expected=self.expected,
            usual=self.usual,
            pods_cpu=pods_cpu,
            pods=self.pods,
            known=self.known,
        )
        load.with_usual = self.with_usual
        return load
