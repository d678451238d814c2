"""MeasuredMachine: control groups that are plain files which tests write, and pods in them."""

from pathlib import Path
from typing import Literal

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.api.model import ObjectMeta
from kedge.node.pod.runtime_cache import EMPTY, PodRuntimeState, pod_runtime_state
from kedge.node.runtime.runtime import PodSandbox, RunState, RuntimeContainer
from kedge.supervisor.kernel.cgroups import Cgroups, Hierarchy

Version = Literal["v1", "hybrid", "v2"]
NODE = "/kedge/test-n1"


class MeasuredMachine:
    """Control groups of one of the three sorts, and pods in them."""

    def __init__(self, directory: Path, version: Version) -> None:
        self._directory = directory
        self._version = version
        first = [
            Hierarchy(str(directory / "cpu,cpuacct"), frozenset(["cpu", "cpuacct"]), False),
            Hierarchy(str(directory / "memory"), frozenset(["memory"]), False),
        ]
        second = Hierarchy(str(directory / "unified"), frozenset(["cpu", "memory"]), True)
        empty = Hierarchy(str(directory / "unified"), frozenset(), True)
        self.cgroups = Cgroups({"v1": first, "hybrid": [*first, empty], "v2": [second]}[version])
        self.known: dict[str, tuple[Pod, PodRuntimeState]] = {}
        self.runtime = 0

    def use(self, path: str, *, cpu: float, memory: int, inactive: int = 0) -> None:
        """A group has used so many seconds, and uses so many bytes."""
        if self._version == "v2":
            at = self._made("unified", path)
            text = f"usage_usec {round(cpu * 1e6)}\nuser_usec 1\nsystem_usec 2\n"
            (at / "cpu.stat").write_text(text)
            (at / "memory.current").write_text(f"{memory}\n")
            stat = f"anon 1\nfile 2\ninactive_anon 3\ninactive_file {inactive}\nslab 9\n"
            (at / "memory.stat").write_text(stat)
            return
        (self._made("cpu,cpuacct", path) / "cpuacct.usage").write_text(f"{round(cpu * 1e9)}\n")
        at = self._made("memory", path)
        (at / "memory.usage_in_bytes").write_text(f"{memory}\n")
        # The values without "total_" are not hierarchical and must be skipped.
        lines = f"cache 7\ninactive_file 5\nrss 6\ntotal_cache 8\ntotal_inactive_file {inactive}\n"
        (at / "memory.stat").write_text(f"{lines}total_unevictable 0\n")

    def remove(self, path: str) -> None:
        for each in self._directory.iterdir():
            at = each / path.strip("/")
            for file in at.glob("*") if at.is_dir() else ():
                file.unlink()

    def _made(self, hierarchy: str, path: str) -> Path:
        at = self._directory / hierarchy / path.strip("/")
        at.mkdir(parents=True, exist_ok=True)
        return at

    # Fulfils kedge.node.stats.sampler.NodePods.

    def pods(self) -> list[Pod]:
        return [pod for pod, _ in self.known.values()]

    def version(self) -> tuple[int, int]:
        seen = frozenset((uid, id(observed)) for uid, (_, observed) in self.known.items())
        return hash(seen), len(seen)

    def observed(self, uid: str) -> PodRuntimeState:
        return self.known[uid][1] if uid in self.known else EMPTY

    def run(
        self, name: str, *containers: str, began: float, uid: str = "", phase: str = "Running"
    ) -> None:
        """A pod with containers that began then and run; those whose name ends with ! do not."""
        uid = uid or f"uid-{name}"
        meta = ObjectMeta(name=name, namespace="shop", uid=uid)
        sandbox = PodSandbox(id=f"s-{uid}", namespace="shop", name=name, uid=uid)
        records = [
            RuntimeContainer(
                id=f"{uid}-{each}-{began}",
                sandbox=sandbox.id,
                name=each.rstrip("!"),
                state=RunState.EXITED if each.endswith("!") else RunState.RUNNING,
                started_at=round(began * 1e9),
                cgroup=group(uid, each.rstrip("!")),
            )
            for each in containers
        ]
        pod = Pod(metadata=meta, status=PodStatus(phase=phase))
        self.known[uid] = pod, pod_runtime_state([sandbox], records)


def group(uid: str, container: str = "") -> str:
    return f"{NODE}/pod{uid}/{container}".rstrip("/")
