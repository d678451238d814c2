"""Who has to go for what he keeps on disk."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.node.host.eviction import PERIOD_SECONDS, LocalStorageEviction
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.runtime.runtime import RunState, RuntimeContainer
from kedge.testing.clock import FakeClock


def pod(name: str, priority: int = 0) -> Pod:
    spec = {"containers": [{"name": "c", "image": "i"}], "priority": priority}
    return RESOURCE.from_document({"metadata": {"name": name, "uid": name}, "spec": spec})


class Node:
    """Pods, and what is said of their volumes."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = pods
        self.evicted: list[tuple[str, str]] = []
        self.too_much: dict[str, str] = {}
        self.written: dict[str, Mapping[str, Sequence[Path]]] = {}
        self.containers: list[RuntimeContainer] = []

    def active(self) -> Sequence[Pod]:
        return self.pods

    def observed(self, uid: str) -> PodRuntimeState:
        return PodRuntimeState(containers=tuple(self.containers))

    def evict(self, uid: str, message: str) -> None:
        self.evicted.append((uid, message))

    def layers(self, container: str) -> Sequence[Path]:
        return [Path("/run") / container]

    def shared(self, uid: str, sandboxes: Sequence[str]) -> Sequence[Path]:
        return [Path("/pods") / uid, *map(Path, sandboxes)]

    async def excess(
        self, pod: Pod, written: Mapping[str, Sequence[Path]], shared: Sequence[Path]
    ) -> str:
        self.written[pod.metadata.name] = written
        assert shared == [Path("/pods") / pod.metadata.uid]
        return self.too_much.get(pod.metadata.name, "")


def eviction(node: Node, clock: FakeClock | None = None) -> LocalStorageEviction:
    return LocalStorageEviction(node, node, node, clock or FakeClock())


async def test_only_who_uses_too_much_goes() -> None:
    node = Node(pod("small"), pod("large"))
    node.too_much["large"] = "too much. "
    await eviction(node).check()
    assert node.evicted == [("large", "too much. ")]


async def test_who_is_as_dear_as_the_node_stays() -> None:
    node = Node(
        pod("dear", 2_000_000_000), pod("dearer", 2_000_001_000), pod("cheap", 1_999_999_999)
    )
    node.too_much = dict.fromkeys(("dear", "dearer", "cheap"), "too much. ")
    await eviction(node).check()
    assert node.evicted == [("cheap", "too much. ")]


async def test_logs_count_once_and_every_layer_does() -> None:
    node = Node(pod("p"))
    node.containers = [
        RuntimeContainer(
            id=id_, sandbox="s", name="c", state=RunState.EXITED, log_path=f"/logs/c/{id_}.log"
        )
        for id_ in ("1", "0")
    ]
    await eviction(node).check()
    assert node.written["p"] == {"c": [Path("/logs/c"), Path("/run/1"), Path("/run/0")]}


async def test_it_looks_every_ten_seconds() -> None:
    node, clock = Node(pod("p")), FakeClock()
    node.too_much["p"] = "too much. "
    work = asyncio.ensure_future(eviction(node, clock).run())
    await clock.advance(PERIOD_SECONDS - 1)
    assert node.evicted == []
    await clock.advance(1)
    assert node.evicted == [("p", "too much. ")]
    work.cancel()
