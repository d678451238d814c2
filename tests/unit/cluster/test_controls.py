"""Time, faults, requests and snapshots of a cluster, by the methods of AsyncCluster."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kedge.api.testing.clock_change import ClockChange, ClockState, change_errors
from kedge.client.controls import ControlsClient
from kedge.cluster.controls import AsyncClock, AsyncControls, AsyncFaults
from kedge.cluster.errors import ClusterError
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document

MAPS = "/api/v1/namespaces/default/configmaps"
AGENT = {"user-agent": "op/1.0"}
NOW = "2030-01-01T00:00:00.000000Z"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(is_for_tests=True) as running:
        yield running


@pytest.fixture
def client(server: LocalServer) -> ControlsClient:
    return ControlsClient(server.client)


async def test_rules_come_and_go(server: LocalServer, client: ControlsClient) -> None:
    faults = AsyncFaults(client, "default")
    rule = await faults.add(verbs=["get"], user_agent="op", code=503, times=1)
    await faults.add(latency=0.5)
    assert (await server.call("GET", f"{MAPS}/a", headers=AGENT)).status == 503
    assert [each.hits for each in await faults.list()] == [1, 0]
    await faults.remove(rule)
    await faults.remove("fault-2")
    await faults.add(drop=True)
    await faults.clear()
    assert await faults.list() == []
    with pytest.raises(StatusError, match="needs an effect"):
        await faults.add(times=2)


async def test_requests_since_a_time(server: LocalServer, client: ControlsClient) -> None:
    controls = AsyncControls(client)
    await server.get(MAPS, headers=AGENT)
    start = datetime(2030, 1, 1, 0, 0, 5, tzinfo=UTC)
    await server.clock.advance(10)
    await server.get(f"{MAPS}?limit=1", headers=AGENT)
    assert len(await controls.requests(user_agent="op")) == 2
    (found,) = await controls.requests(start, user_agent="op", verbs=["list"])
    assert await controls.requests(found.number + 1, user_agent="op") == []


async def test_a_quiet_client(server: LocalServer, client: ControlsClient) -> None:
    controls = AsyncControls(client)
    await server.get(MAPS, headers=AGENT)
    await controls.assert_quiet(0, user_agent="op")


async def test_a_container_of_a_pod_is_killed(
    server: LocalServer, client: ControlsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, pods = AsyncFaults(client, "default"), "/api/v1/namespaces/default/pods"
    document = pod_document(metadata={"name": "p"})
    await server.post(pods, document)
    name = document["spec"]["containers"][0]["name"]
    with pytest.raises(StatusError, match='pod "p" is not on a node'):
        await faults.oom_kill("pod/p")
    with pytest.raises(StatusError, match='pod "p" has no container "other"'):
        await faults.oom_kill("p", "other")
    bound = pod_document(metadata={"name": "q"}, spec={"nodeName": "n1"})
    uid = (await server.post(pods, bound))["metadata"]["uid"]
    sent: list[tuple[str, str]] = []

    async def send(method: str, path: str) -> None:
        sent.append((method, path))
        if len(sent) > 1:
            raise StatusError(404, "Unknown", "404 page not found")

    monkeypatch.setattr(client._client, "send", send)
    await faults.oom_kill("q", namespace="default")
    assert sent == [("POST", f"/api/v1/nodes/n1/proxy/testing/oomKill/{uid}/{name}")]
    with pytest.raises(ClusterError, match="not started for tests"):
        await faults.oom_kill("q")


async def test_objects_come_back(server: LocalServer, client: ControlsClient) -> None:
    controls = AsyncControls(client)
    taken = await controls.snapshot()
    await server.post(MAPS, {"metadata": {"name": "a"}})
    assert (await controls.restore(taken)).deleted == 1
    assert (await controls.restore(taken.id)).deleted == 0


async def test_the_clock(client: ControlsClient, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[ClockChange] = []

    async def change_clock(change: ClockChange) -> ClockState:
        changes.append(change)
        return ClockState(now=NOW, offset=0, frozen=False)

    monkeypatch.setattr(client, "change_clock", change_clock)
    clock = AsyncClock(client)
    assert await clock.advance(days=1, hours=1, minutes=1, seconds=1) == datetime(
        2030, 1, 1, tzinfo=UTC
    )
    await clock.freeze()
    await clock.resume()
    assert changes == [
        ClockChange(advance=90061),
        ClockChange(frozen=True),
        ClockChange(frozen=False),
    ]


@pytest.mark.parametrize(("offset", "advance"), [(3600.0, 3600.0), (-5.0, 0.0)])
async def test_a_fork_has_the_time_of_its_origin_but_never_goes_back(
    client: ControlsClient, monkeypatch: pytest.MonkeyPatch, offset: float, advance: float
) -> None:
    changes: list[ClockChange] = []

    async def clock() -> ClockState:
        return ClockState(now=NOW, offset=offset, frozen=True)

    async def change_clock(change: ClockChange) -> ClockState:
        changes.append(change)
        return await clock()

    monkeypatch.setattr(client, "clock", clock)
    monkeypatch.setattr(client, "change_clock", change_clock)
    controls = AsyncControls(client)
    await controls.follow(controls)
    assert changes == [ClockChange(advance=advance, frozen=True)]
    assert list(change_errors(changes[0])) == []


async def test_another_cluster_says_how_to_start_it() -> None:
    async with LocalServer.running() as server:
        client = ControlsClient(server.client)
        works: list[Any] = [
            AsyncClock(client).now(),
            AsyncFaults(client, "default").list(),
            AsyncControls(client).requests(),
            AsyncControls(client).snapshot(),
        ]
        for work in works:
            with pytest.raises(ClusterError, match=r"kedge.Cluster\(testing=True\)"):
                await work
