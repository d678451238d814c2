"""The recorder: the same thing is counted, much of the same is told as one, and too much not."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from kedge.api.core_v1.event import EventSource
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.references import ObjectReference
from kedge.api.model import ObjectMeta
from kedge.client.client import Client
from kedge.client.events import (
    BURST,
    COMBINED,
    NORMAL,
    PAUSE,
    REFILL,
    REMEMBERED,
    SIMILAR,
    WAITING,
    WARNING,
    Correlator,
    EventDetails,
    Recorder,
    reference_to,
)
from kedge.client.transport import Call, LocalTransport, Unreachable
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

POD = Pod(metadata=ObjectMeta(name="web", namespace="default", uid="u-1"))
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


def recorder(server: LocalServer) -> Recorder:
    made = Recorder(server.client, server.clock, "kubelet", "node-1")
    server.start(made.run())
    return made


async def told(server: LocalServer) -> list[dict[str, Any]]:
    await server.settle()
    items: list[dict[str, Any]] = (await server.get(EVENTS))["items"]
    return items


async def test_an_event_says_what_happened_to_whom_and_who_noticed(server: LocalServer) -> None:
    path = "spec.containers{c}"
    recorder(server).record(POD, NORMAL, "Pulled", "Image pulled", field_path=path)
    event = (await told(server))[0]
    assert event["involvedObject"] == {
        "kind": "Pod",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "web",
        "uid": "u-1",
        "fieldPath": path,
    }
    assert event["metadata"]["name"].startswith("web.")
    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "Pulled",
        "Image pulled",
    )
    assert event["source"] == {"component": "kubelet", "host": "node-1"}
    assert (event["reportingComponent"], event["reportingInstance"]) == ("kubelet", "node-1")
    assert (event["count"], event["firstTimestamp"]) == (1, "2030-01-01T00:00:00Z")


async def test_the_same_event_is_counted(server: LocalServer) -> None:
    record = recorder(server).record
    record(POD, WARNING, "BackOff", "again")
    record(POD, WARNING, "Other", "again")
    await server.clock.advance(60)
    record(POD, WARNING, "BackOff", "again")
    record(POD, WARNING, "BackOff", "again")
    found = {event["reason"]: event for event in await told(server)}
    assert {reason: event["count"] for reason, event in found.items()} == {"BackOff": 3, "Other": 1}
    assert found["BackOff"]["firstTimestamp"] == "2030-01-01T00:00:00Z"
    assert found["BackOff"]["lastTimestamp"] == "2030-01-01T00:01:00Z"


async def test_a_count_goes_on_where_the_event_was_forgotten(server: LocalServer) -> None:
    record = recorder(server).record
    record(POD, WARNING, "BackOff", "again")
    (first,) = await told(server)
    await server.delete(f"{EVENTS}/{first['metadata']['name']}")
    for _ in range(2):
        record(POD, WARNING, "BackOff", "again")
    (event,) = await told(server)
    assert event["count"] == 3
    assert event["metadata"]["name"] != first["metadata"]["name"]


async def test_objects_outside_of_namespaces_have_theirs_in_default(server: LocalServer) -> None:
    node = ObjectReference(apiVersion="v1", kind="Node", name="node-1", uid="node-1")
    recorder(server).record(node, NORMAL, "Starting", "Starting.")
    assert [event["involvedObject"]["name"] for event in await told(server)] == ["node-1"]


async def test_what_the_server_refuses_is_not_in_the_way_of_others(server: LocalServer) -> None:
    record = recorder(server).record
    elsewhere = Pod(metadata=ObjectMeta(name="web", namespace="nowhere"))
    record(elsewhere, NORMAL, "Started", "one")
    record(POD, NORMAL, "Started", "two")
    assert [event["message"] for event in await told(server)] == ["two"]


class Answer:
    status, content_type, headers = 201, "application/json", ()
    body = b"{}"


class Peer:
    """A server that is away at first and then takes everything."""

    def __init__(self, away: int = 0) -> None:
        self.calls: list[Call] = []
        self._away = away

    def __call__(self, call: Call) -> Answer:
        self.calls.append(call)
        if len(self.calls) <= self._away:
            raise Unreachable("away")
        return Answer()


async def test_a_server_that_is_away_gets_it_later() -> None:
    peer, clock = Peer(away=2), FakeClock()
    made = Recorder(Client(LocalTransport(peer)), clock, "c")
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(made.run())
        made.record(POD, NORMAL, "Started", "x")
        for _ in range(3):
            await clock.advance(PAUSE)
        run.cancel()
    assert [call.method for call in peer.calls] == ["POST"] * 3


async def test_nobody_waits_for_events(caplog: pytest.LogCaptureFixture) -> None:
    peer, clock = Peer(), FakeClock()
    made = Recorder(Client(LocalTransport(peer)), clock, "c")
    for number in range(WAITING + 5):
        made.record(Pod(metadata=ObjectMeta(name=f"p{number}")), NORMAL, "Started", "x")
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(made.run())
        await clock.advance(0)
        run.cancel()
    assert len(peer.calls) == WAITING
    assert caplog.messages == ["events lost component=c count=5"]


def happening(message: str = "x", name: str = "web") -> EventDetails:
    return EventDetails(ObjectReference(kind="Pod", name=name), WARNING, "Failed", message)


def test_much_of_the_same_is_told_as_one() -> None:
    now = FakeClock().now()
    correlator = Correlator(EventSource(component="c"))
    events = [correlator.event(happening(f"try {i}"), now) for i in range(SIMILAR + 2)]
    assert [event.message for event in events if event] == [
        *(f"try {i}" for i in range(SIMILAR - 1)),
        *(f"{COMBINED}try {i}" for i in range(SIMILAR - 1, SIMILAR + 2)),
    ]
    assert [event.count for event in events if event][-3:] == [1, 2, 3]
    assert len({event.metadata.name for event in events if event}) == SIMILAR


def test_one_object_may_not_fill_the_store() -> None:
    now = FakeClock().now()
    correlator = Correlator(EventSource(component="c"))
    taken = [correlator.event(happening(), now) for _ in range(BURST + 5)]
    assert sum(event is not None for event in taken) == BURST
    assert correlator.event(happening(name="other"), now) is not None
    later = now + REFILL + timedelta(seconds=1)
    assert correlator.event(happening(), later) is not None
    assert correlator.event(happening(), later) is None


def test_texts_of_tenants_are_not_remembered() -> None:
    """Twenty components with thousands of messages of a kilobyte held hundreds of megabytes."""
    now = FakeClock().now()
    correlator = Correlator(EventSource(component="c"))
    tracemalloc.start()
    try:
        for i in range(2 * REMEMBERED):
            correlator.event(happening(f"{i}" + "x" * 1_000, f"{i}" + "n" * 200), now)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < REMEMBERED * 2_000


def test_what_an_object_is_follows_from_its_type() -> None:
    assert reference_to(POD).apiVersion == "v1"
    assert reference_to(POD).kind == "Pod"
    named = Pod(kind="Other", apiVersion="example.com/v1", metadata=POD.metadata)
    assert (reference_to(named).apiVersion, reference_to(named).kind) == ("example.com/v1", "Other")
