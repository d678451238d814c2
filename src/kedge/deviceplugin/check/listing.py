"""Scenarios of ListAndWatch."""

import asyncio

from kedge.deviceplugin import library, methods, wire
from kedge.deviceplugin import messages as m
from kedge.deviceplugin.check.bench import CallRejected, PluginBench
from kedge.deviceplugin.check.scenario import (
    ScenarioDoubtful,
    ScenarioFailed,
    Scenarios,
    ScenarioSkipped,
    expect,
)

scenario: Scenarios[PluginBench] = Scenarios()

_GROUP = "devices"
LONGEST_ID = 63
STOCK_LIMIT = 4 * 2**20
"""The default limit of a gRPC client for one message, in bytes."""


async def _list(bench: PluginBench) -> list[m.Device]:
    try:
        return await bench.first_list()
    except CallRejected as error:
        raise ScenarioFailed(f"ListAndWatch: {error}") from error


@scenario(_GROUP, "answers GetDevicePluginOptions")
async def options(bench: PluginBench) -> str:
    try:
        found = await bench.call(methods.OPTIONS, m.Empty())
    except CallRejected as error:
        raise ScenarioFailed(str(error)) from error
    bench.plugin.options = found
    named = {
        "PreStartContainer": found.pre_start_required,
        "GetPreferredAllocation": found.get_preferred_allocation_available,
        "ReleaseContainer": found.release_required,
    }
    return "wants " + (", ".join(name for name, wanted in named.items() if wanted) or "nothing")


@scenario(_GROUP, "lists its devices at once", vital=True)
async def listed(bench: PluginBench) -> str:
    bench.devices = await _list(bench)
    return f"{len(bench.devices)} devices, {len(bench.healthy)} healthy"


@scenario(_GROUP, "has a healthy device")
async def some(bench: PluginBench) -> None:
    if not bench.healthy:
        raise ScenarioDoubtful("without one, most of what follows cannot be tried")


@scenario(_GROUP, "gives each device a name of its own")
async def unique(bench: PluginBench) -> None:
    ids = [each.id for each in bench.devices]
    expect(all(ids), "a device has no ID")
    twice = {each for each in ids if ids.count(each) > 1} if len(ids) < 5000 else set()
    expect(len(set(ids)) == len(ids), f"IDs that occur twice: {', '.join(sorted(twice)[:3])}")


@scenario(_GROUP, "gives devices short names")
async def short(bench: PluginBench) -> None:
    if long := [each.id for each in bench.devices if len(each.id) > LONGEST_ID]:
        raise ScenarioDoubtful(f"IDs are to have at most {LONGEST_ID} characters: {long[0]}")


@scenario(_GROUP, "says Healthy or Unhealthy")
async def health(bench: PluginBench) -> None:
    words = {each.health for each in bench.devices} - {m.HEALTHY, m.UNHEALTHY}
    expect(not words, f"it also says {', '.join(repr(word) for word in sorted(words))}")


@scenario(_GROUP, "names parts of the machine that can be")
async def topology(bench: PluginBench) -> str | None:
    places = [
        place.id
        for each in bench.devices
        if each.topology is not None
        for place in each.topology.nodes
    ]
    expect(all(place >= 0 for place in places), f"there is no NUMA node {min(places, default=0)}")
    return f"NUMA nodes {', '.join(map(str, sorted(set(places))))}" if places else None


@scenario(_GROUP, "fits its list into one message")
async def size(bench: PluginBench) -> None:
    length = len(wire.encode(m.ListAndWatchResponse(devices=bench.devices)))
    if length > STOCK_LIMIT:
        raise ScenarioDoubtful(f"{length} bytes are more than other kubelets take")


@scenario(_GROUP, "tells a second listener the whole list")
async def again(bench: PluginBench) -> None:
    found = {each.id for each in await _list(bench)}
    expect(found == {each.id for each in bench.devices}, "the second list is another one")


@scenario(_GROUP, "keeps the stream open")
async def patient(bench: PluginBench) -> None:
    grpc = library.load()
    async with bench.connected() as channel:
        stream = methods.streamer(channel, methods.LIST_AND_WATCH)(m.Empty())
        try:
            while True:
                answer = await asyncio.wait_for(stream.read(), 0.7)
                expect(answer is not grpc.aio.EOF, "it ended by itself")
                expect(
                    len({each.id for each in answer.devices}) == len(answer.devices),
                    "a later list names a device twice",
                )
        except TimeoutError:
            return
        except grpc.aio.AioRpcError as error:
            raise ScenarioFailed(f"it ended: {error.code().name} {error.details()}") from error
        finally:
            stream.cancel()


@scenario(_GROUP, "does not mind a listener who leaves")
async def leaving(bench: PluginBench) -> None:
    for _ in range(5):
        await _list(bench)
    expect(bench.alive, "it ended")


# Choosing.


async def _prefer(
    bench: PluginBench, available: list[str], included: list[str], size: int
) -> set[str]:
    if not bench.options.get_preferred_allocation_available:
        raise ScenarioSkipped("it does not offer GetPreferredAllocation")
    if len(bench.healthy) < max(size, 2):
        raise ScenarioSkipped("it has too few devices for a choice")
    asked = m.ContainerPreferredAllocationRequest(
        available_device_ids=available, must_include_device_ids=included, allocation_size=size
    )
    try:
        answer = await bench.call(
            methods.PREFER, m.PreferredAllocationRequest(container_requests=[asked])
        )
    except CallRejected as error:
        raise ScenarioFailed(str(error)) from error
    expect(len(answer.container_responses) == 1, "it does not answer for the one container")
    return set(answer.container_responses[0].device_ids)


@scenario("choice", "chooses as many devices as are wanted")
async def enough(bench: PluginBench) -> None:
    got = await _prefer(bench, bench.healthy, [], 1)
    expect(len(got) == 1, f"it chose {len(got)} instead of one")


@scenario("choice", "chooses among those that are free")
async def free(bench: PluginBench) -> None:
    available = bench.healthy[1:]
    got = await _prefer(bench, available, [], 1)
    expect(got <= set(available), f"{', '.join(sorted(got - set(available)))} was not to be had")


@scenario("choice", "includes what must be included")
async def included(bench: PluginBench) -> None:
    must = bench.healthy[-1:]
    got = await _prefer(bench, bench.healthy, must, 2)
    expect(set(must) <= got, f"it left out {must[0] if must else ''}")
