import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport, Unreachable
from kedge.node.pod.status.writer import DELAY_SECONDS, StatusWriter
from kedge.testing.local_server import LocalServer
from kedge.testing.node import PODS
from kedge.testing.pods import pod_document


class Bench:
    """A writer whose requests can be counted, held and made to fail."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.calls: list[Call] = []
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        inner = server.client._transport

        async def handle(call: Call) -> Any:
            self.calls.append(call)
            await self.gate.wait()
            if self.errors:
                raise self.errors.pop(0)
            reply = await inner.send(call)
            return _Answer(reply.status, reply.body)

        self.writer = StatusWriter(Client(LocalTransport(handle)), server.clock)
        self.task = asyncio.ensure_future(self.writer.run())

    async def pod(self, name: str = "pod") -> Pod:
        document = pod_document(
            metadata={"name": name},
            spec={"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        )
        return RESOURCE.from_document(await self.server.post(PODS, document))

    async def settle(self) -> None:
        for _ in range(10):
            await self.server.clock.advance(0.01)

    async def status(self, name: str = "pod") -> dict[str, Any]:
        found: dict[str, Any] = (await self.server.get(f"{PODS}/{name}"))["status"]
        return found


class _Answer:
    content_type = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with LocalServer.running() as server:
        made = Bench(server)
        yield made
        made.task.cancel()


async def test_statuses_that_pile_up_are_told_as_one(bench: Bench) -> None:
    pod = await bench.pod()
    bench.gate.clear()
    bench.writer.write(pod, PodStatus(phase="Pending"))
    await bench.settle()
    for message in ("one", "two", "three"):
        bench.writer.write(pod, PodStatus(phase="Running", message=message))
    bench.gate.set()
    await bench.writer.flush(pod.metadata.uid)
    status = await bench.status()
    assert (status["phase"], status["message"]) == ("Running", "three")
    assert len(bench.calls) == 2


async def test_a_status_that_is_not_urgent_waits_for_the_next(bench: Bench) -> None:
    pod = await bench.pod()
    bench.writer.write(pod, PodStatus(message="first"), urgent=False)
    await bench.server.clock.advance(0.01)
    assert bench.calls == []
    bench.writer.write(pod, PodStatus(message="second"))
    await bench.settle()
    assert len(bench.calls) == 1
    bench.writer.write(pod, PodStatus(message="third"), urgent=False)
    await bench.server.clock.advance(DELAY_SECONDS)
    await bench.settle()
    assert (await bench.status())["message"] == "third", "nor for ever"


async def test_what_the_api_has_already_is_not_sent(bench: Bench) -> None:
    pod = await bench.pod()
    bench.writer.write(pod, PodStatus(phase="Running", qosClass="BestEffort"))
    await bench.settle()
    bench.writer.write(pod, PodStatus(phase="Running", qosClass="BestEffort"))
    await bench.settle()
    assert len(bench.calls) == 1


async def test_a_server_that_cannot_be_reached_is_asked_again(bench: Bench) -> None:
    pod = await bench.pod()
    bench.errors = [Unreachable("gone"), Unreachable("gone")]
    bench.writer.write(pod, PodStatus(phase="Running"))
    await bench.server.clock.advance(1)
    assert (await bench.status())["phase"] == "Running"


async def test_the_status_of_one_pod_is_not_told_of_the_next_of_its_name(bench: Bench) -> None:
    old = await bench.pod()
    await bench.server.delete(f"{PODS}/pod", {"gracePeriodSeconds": 0})
    bench.writer.write(old, PodStatus(message="old"))
    await bench.settle()
    assert (await bench.server.call("GET", f"{PODS}/pod")).status == 404
    await bench.pod()
    bench.writer.forget(old.metadata.uid)
    bench.writer.write(replace(old), PodStatus(message="old"))
    await bench.settle()
    assert "message" not in await bench.status()


async def test_a_pod_is_let_go(bench: Bench) -> None:
    pod = await bench.pod()
    await bench.server.delete(f"{PODS}/pod")
    assert (await bench.server.get(f"{PODS}/pod"))["metadata"]["deletionTimestamp"]
    await bench.writer.delete(pod)
    assert (await bench.server.call("GET", f"{PODS}/pod")).status == 404
    await bench.writer.delete(pod)


async def test_another_pod_of_the_name_is_not_let_go(bench: Bench) -> None:
    old = await bench.pod()
    await bench.server.delete(f"{PODS}/pod", {"gracePeriodSeconds": 0})
    await bench.pod()
    await bench.writer.delete(old)
    assert (await bench.server.call("GET", f"{PODS}/pod")).status == 200
