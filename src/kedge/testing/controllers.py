"""Harness for controllers: an API server in this process, with pods that only claim to run."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kedge.client.client import Client
from kedge.controllers.controllers import Controller
from kedge.controllers.shared_informers import SharedInformers
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.testing.local_server import LocalServer

Json = dict[str, Any]

ROUNDS = 15
"""Turns that all controllers get: a rollout passes through several of them."""


Maker = Callable[[Client, SharedInformers, Clock], Controller]


class ControllerHarness:
    """A server with running controllers."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.clock = server.clock

    async def settle(self) -> None:
        """Let all controllers act until nothing is left to do."""
        for _ in range(ROUNDS):
            await self.server.settle()

    async def pass_time(self, seconds: float) -> None:
        await self.settle()
        await self.clock.advance(seconds)
        await self.settle()

    async def create(self, path: str, document: Mapping[str, Any]) -> Json:
        """Post a document below /api or /apis, and let all controllers act on it."""
        made: Json = await self.server.post(path, document)
        await self.settle()
        return made

    async def change(self, path: str, patch: Mapping[str, Any]) -> Json:
        """Merge a patch, and let all controllers act on it."""
        changed: Json = await self.server.merge(path, patch)
        await self.settle()
        return changed

    async def remove(self, path: str, options: Mapping[str, Any] | None = None) -> None:
        await self.server.delete(path, options)
        await self.settle()

    async def below(self, path: str) -> list[Json]:
        """Everything below a path, by name."""
        items: list[Json] = (await self.server.get(path))["items"]
        return sorted(items, key=lambda each: str(each["metadata"]["name"]))

    async def pods(self, namespace: str = "default", *, selector: str = "") -> list[Json]:
        query = f"?labelSelector={selector}" if selector else ""
        return await self.below(f"/api/v1/namespaces/{namespace}/pods{query}")

    async def events(self, namespace: str = "default") -> list[tuple[str, str]]:
        """Return the reason and message of every event."""
        found = await self.below(f"/api/v1/namespaces/{namespace}/events")
        return [(each["reason"], each["message"]) for each in found]

    async def run_pod(self, pod: Json, *, node: str = "", ready: bool = True) -> None:
        """Let a pod be bound, if a node is given, and run."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if node and not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            binding = {"metadata": {"name": meta["name"]}, "target": target}
            await self.server.post(f"{path}/binding", binding)
        now = format_time(self.clock.now())
        said = "True" if ready else "False"
        conditions = [
            {"type": kind, "status": said, "lastTransitionTime": now}
            for kind in ("Ready", "ContainersReady")
        ]
        status = {"phase": "Running", "startTime": now, "conditions": conditions}
        await self.change(f"{path}/status", {"status": status})

    async def run_all(self, namespace: str = "default") -> None:
        """Let every pod that is not running run, until no new one appears."""
        while waiting := [
            pod
            for pod in await self.pods(namespace)
            if pod["status"].get("phase", "Pending") == "Pending"
            and "deletionTimestamp" not in pod["metadata"]
        ]:
            for pod in waiting:
                await self.run_pod(pod)

    async def end_pod(self, pod: Json, *, exit_code: int = 0, reason: str = "") -> None:
        """Let all containers of a pod end, and with them the pod."""
        meta = pod["metadata"]
        ended = {"exitCode": exit_code, "finishedAt": format_time(self.clock.now())}
        statuses = [
            {"name": each["name"], "image": each["image"], "imageID": "", "ready": False}
            | {"restartCount": 0, "state": {"terminated": ended}}
            for each in pod["spec"]["containers"]
        ]
        status = {
            "phase": "Failed" if exit_code else "Succeeded",
            "reason": reason,
            "containerStatuses": statuses,
            "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}],
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        await self.change(path, {"status": status})

    async def bury(self, pod: Json) -> None:
        """Take away a pod that was deleted, as its node does once its containers have ended."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        await self.remove(path, {"gracePeriodSeconds": 0})


@asynccontextmanager
async def workshop(
    *makers: Maker, admission: tuple[str, ...] = ()
) -> AsyncIterator[ControllerHarness]:
    """A server with these controllers at work."""
    async with LocalServer.running(admission=("NamespaceLifecycle", *admission)) as server:
        shared = SharedInformers(server.client, server.clock)
        controllers = [maker(server.client, shared, server.clock) for maker in makers]
        tasks = [server.start(shared.run())]
        await shared.synced()
        tasks += [server.start(controller.run()) for controller in controllers]
        place = ControllerHarness(server)
        await place.settle()
        try:
            yield place
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
