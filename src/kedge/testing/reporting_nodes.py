"""ReportingNodes: nodes and pods of a local server, and the frames that a test has them send."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from kedge.metrics.frame import Frame, FrameContainer, FramePod
from kedge.metrics.frame_codec import CONTENT_TYPE, encode, path_of
from kedge.metrics.windows import TICK_SECONDS, WINDOWS
from kedge.testing.local_server import LocalAnswer, LocalServer

DAY = 86400


def row(cpu: float = 0.25, memory: float = 64 << 20) -> list[float]:
    """Return windows whose statistics differ: the mean, its double and its triple."""
    return [value for _ in WINDOWS for n in (1, 2, 3) for value in (cpu * n, memory * n)]


class ReportingNodes:
    """Makes nodes and pods, and reports as a node does."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.uids: dict[str, str] = {}

    @property
    def tick(self) -> int:
        return int(self.server.clock.now().timestamp()) // TICK_SECONDS

    async def node(self, name: str, **labels: str) -> Any:
        made = await self.server.post(
            "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}}
        )
        self.uids[name] = made["metadata"]["uid"]
        return made

    async def pod(self, name: str, node: str, namespace: str = "default", **labels: str) -> Any:
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "host"}]}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        made = await self.server.post(f"/api/v1/namespaces/{namespace}/pods", body)
        self.uids[f"{namespace}/{name}"] = made["metadata"]["uid"]
        return made

    def frame(
        self,
        node: str,
        pods: Mapping[str, Sequence[str]],
        *,
        tick: int = 0,
        ended: Mapping[str, int] | None = None,
        cpu: float = 0.25,
        resolution: int = 10,
        since: int = 0,
    ) -> Frame:
        """Pods, as namespace/name, with the names of their containers; all use the same."""
        tick = tick or self.tick
        since = since or tick * TICK_SECONDS - 2 * DAY
        systems = [FrameContainer("kubelet", since, 1)]
        at = 1 + len(systems)
        inner = at + len(pods)
        values = [row(4.0, 3 << 30), row(0.03)]
        measured = []
        for number, (key, names) in enumerate(pods.items()):
            containers = [FrameContainer(each, since, inner + i) for i, each in enumerate(names)]
            inner += len(names)
            namespace, name = key.split("/")
            uid = self.uids.get(key, f"uid-{key}")
            end = (ended or {}).get(key, tick)
            measured.append(FramePod(namespace, name, uid, since, end, at + number, containers))
        values += [row(cpu * len(names)) for names in pods.values()]
        values += [row(cpu) for names in pods.values() for _ in names]
        numbers = array("f", [value for each in values for value in each])
        uid = self.uids.get(node, "uid")
        return Frame(node, uid, tick, resolution, since, systems, measured, numbers)

    async def send(
        self, node: str, body: bytes, *, sender: str = "", type_: str = CONTENT_TYPE
    ) -> LocalAnswer:
        headers = {
            "impersonate-user": f"system:node:{sender or node}",
            "impersonate-group": "system:nodes",
        }
        return await self.server.call(
            "POST", path_of(node), body, content_type=type_, headers=headers
        )

    async def report(self, node: str, *pods: str, **more: Any) -> None:
        """Report pods with one container each, in the namespace default unless said otherwise."""
        named = {each if "/" in each else f"default/{each}": ["main"] for each in pods}
        made = self.frame(node, named, **more)
        answer = await self.send(node, encode(made))
        assert answer.status == 200, answer.text
