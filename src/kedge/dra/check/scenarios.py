"""Scenarios of a driver's life: registration, ResourceSlices, claims, health and restarts."""

import asyncio
import re
import signal
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from kedge.api.resource_v1 import resource_slice
from kedge.deviceplugin import library
from kedge.deviceplugin import methods as calls
from kedge.deviceplugin.check.bench import CallRejected, connected
from kedge.deviceplugin.check.scenario import (
    ScenarioDoubtful,
    ScenarioFailed,
    Scenarios,
    ScenarioSkipped,
    expect,
)
from kedge.deviceplugin.messages import Empty
from kedge.dra import messages as m
from kedge.dra.check.driver_bench import NODE, DriverBench
from kedge.dra.methods import SERVICES, WATCH_HEALTH
from kedge.machinery.names import dns_subdomain

scenario: Scenarios[DriverBench] = Scenarios()

T = TypeVar("T")

CDI_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*=[A-Za-z0-9][\w.:-]*")
_STRANGER: Final = m.ClaimReference(
    namespace="default", name="no-such-claim", uid="00000000-0000-0000-0000-000000000000"
)


async def _done(work: Awaitable[T]) -> T:
    try:
        return await work
    except CallRejected as error:
        raise ScenarioFailed(str(error)) from error


async def _devices(bench: DriverBench) -> list[tuple[str, str]]:
    """Return pools and names of the devices that the driver has published."""
    return [
        (each.spec.pool.name, device.name)
        for each in await bench.slices()
        for device in each.spec.devices
    ]


async def _some(bench: DriverBench, number: int = 1) -> list[tuple[str, str]]:
    found = await _devices(bench)
    if len(found) < number:
        raise ScenarioSkipped(f"it has published fewer than {number} devices")
    return found[:number]


async def _prepared(bench: DriverBench, claim: m.ClaimReference) -> Sequence[m.PreparedDevice]:
    result = _only(await _done(bench.prepare(claim)), claim)
    expect(not result.error, result.error)
    return result.devices


async def _unprepared(bench: DriverBench, claim: m.ClaimReference) -> None:
    result = _only(await _done(bench.unprepare(claim)), claim)
    expect(not result.error, result.error)


def _only(results: Mapping[str, T], claim: m.ClaimReference) -> T:
    expect(list(results) == [claim.uid], f"it answers for {list(results)} instead of {claim.uid}")
    return results[claim.uid]


# Registration.


@scenario("registration", "registers", vital=True)
async def registers(bench: DriverBench) -> str:
    await bench.start()
    expect(
        await bench.registers(bench.patience),
        f"no driver at a socket in {bench.registry} within {bench.patience:g} s",
    )
    return bench.info.name


@scenario("registration", "says that it is a driver", vital=True)
async def kind(bench: DriverBench) -> None:
    expect(bench.info.type == m.DRIVER_TYPE, f'its type is "{bench.info.type}"')


@scenario("registration", "has the name of a domain", vital=True)
async def name(bench: DriverBench) -> None:
    found = bench.info.name
    expect(not dns_subdomain(found) and len(found) <= 63, f'"{found}" is no name such as a.example')


@scenario("registration", "offers a service that kubelets know", vital=True)
async def services(bench: DriverBench) -> str:
    offered = bench.info.supported_versions
    expect(any(each in SERVICES for each in offered), f"it offers {list(offered)}")
    if m.V1 not in offered:
        raise ScenarioDoubtful("it offers no v1.DRAPlugin")
    return ", ".join(offered)


@scenario("registration", "names its socket with its whole path")
async def endpoint(bench: DriverBench) -> None:
    expect(bench.endpoint.is_absolute(), f"its endpoint is {bench.endpoint}")


@scenario("registration", "accepts the answer of the kubelet")
async def answer(bench: DriverBench) -> None:
    await _done(bench.notify())


# ResourceSlices.


@scenario("slices", "publishes its devices", vital=True)
async def publishes(bench: DriverBench) -> str:
    expect(await bench.published(bench.patience), "there is no ResourceSlice of it")
    return ", ".join(name for _, name in (await _devices(bench))[:8])


@scenario("slices", "publishes for its node only")
async def own_node(bench: DriverBench) -> None:
    others = [each for each in await bench.slices() if each.spec.nodeName != NODE]
    if others:
        raise ScenarioDoubtful("some of its slices are not bound to the node in NODE_NAME")


@scenario("slices", "publishes complete pools")
async def complete(bench: DriverBench) -> None:
    counted: dict[tuple[str, int], list[int]] = {}
    for each in await bench.slices():
        pool = each.spec.pool
        counted.setdefault((pool.name, pool.generation), []).append(pool.resourceSliceCount)
    for (pool_name, generation), counts in counted.items():
        expect(
            set(counts) == {len(counts)},
            f"pool {pool_name} has {len(counts)} slices of generation {generation}, not {counts}",
        )


@scenario("slices", "gives each device of a pool a name of its own")
async def unique(bench: DriverBench) -> None:
    found = await _devices(bench)
    expect(len(set(found)) == len(found), "a device is in two slices")


@scenario("slices", "publishes again when its slices are deleted")
async def restores(bench: DriverBench) -> None:
    before = set(await _devices(bench))
    for each in await bench.slices():
        await bench.client.delete(resource_slice.RESOURCE, each.metadata.name)
    if not await bench.published(15):
        raise ScenarioFailed("it does not: a kubelet that starts deletes all slices of its node")
    await bench.clock.sleep(0.5)
    expect(set(await _devices(bench)) == before, "it publishes other devices than before")


# Claims.


@scenario("claims", "prepares a claim", vital=True)
async def prepares(bench: DriverBench) -> None:
    claim = await bench.claim(await _some(bench))
    await _prepared(bench, claim)
    await _unprepared(bench, claim)


@scenario("claims", "names the devices of the claim")
async def named(bench: DriverBench) -> None:
    wanted = await _some(bench)
    claim = await bench.claim(wanted)
    found = await _prepared(bench, claim)
    await _unprepared(bench, claim)
    strange = {(each.pool_name, each.device_name) for each in found} - set(wanted)
    expect(not strange, f"{sorted(strange)} is not in the claim")
    requests = {name for each in found for name in each.request_names}
    expect(requests <= {"r-0"}, f"the claim has no request {sorted(requests)}")


@scenario("claims", "names CDI devices that can be")
async def cdi(bench: DriverBench) -> str | None:
    claim = await bench.claim(await _some(bench))
    found = await _prepared(bench, claim)
    await _unprepared(bench, claim)
    names = [name for each in found for name in each.cdi_device_ids]
    bad = [name for name in names if not CDI_NAME.fullmatch(name)]
    expect(not bad, f"{bad} is no name such as example.com/class=device")
    if not names:
        raise ScenarioDoubtful("containers get nothing with the device")
    return ", ".join(names)


@scenario("claims", "prepares a claim again")
async def again(bench: DriverBench) -> None:
    """A kubelet that restarts does not know whether it has been prepared."""
    claim = await bench.claim(await _some(bench))
    before = await _prepared(bench, claim)
    after = await _prepared(bench, claim)
    await _unprepared(bench, claim)
    if before != after:
        raise ScenarioDoubtful("it answers otherwise the second time")


@scenario("claims", "prepares several claims in one call")
async def several(bench: DriverBench) -> None:
    devices = await _some(bench, 2)
    claims = [await bench.claim([each]) for each in devices]
    results = await _done(bench.prepare(*claims))
    expect(results.keys() == {each.uid for each in claims}, "an answer is missing")
    errors = [each.error for each in results.values() if each.error]
    expect(not errors, "; ".join(errors))
    done = await _done(bench.unprepare(*claims))
    expect(done.keys() == {each.uid for each in claims}, "an answer to unprepare is missing")


@scenario("claims", "prepares a claim with several devices")
async def many(bench: DriverBench) -> None:
    claim = await bench.claim(await _some(bench, 2))
    await _prepared(bench, claim)
    await _unprepared(bench, claim)


@scenario("claims", "prepares for many pods at once")
async def at_once(bench: DriverBench) -> None:
    devices = (await _devices(bench))[:8]
    claims = [await bench.claim([each]) for each in devices]
    await asyncio.gather(*(_prepared(bench, each) for each in claims))
    await asyncio.gather(*(_unprepared(bench, each) for each in claims))


async def _refuses(bench: DriverBench, claim: m.ClaimReference, why: str) -> None:
    try:
        result = _only(await bench.prepare(claim), claim)
    except CallRejected:
        result = m.PrepareResult(error="rejected")
    expect(result.error, why)
    expect(bench.alive, "it ended")


@scenario("claims", "refuses a claim that does not exist")
async def missing(bench: DriverBench) -> None:
    await _refuses(bench, _STRANGER, "it prepares a claim that does not exist")


@scenario("claims", "refuses a claim that is not allocated")
async def unallocated(bench: DriverBench) -> None:
    await _refuses(bench, await bench.claim(None), "it prepares a claim that has no devices")


@scenario("claims", "refuses a claim that has been replaced")
async def replaced(bench: DriverBench) -> None:
    claim = await bench.claim(await _some(bench))
    other = replace(claim, uid=_STRANGER.uid)
    await _refuses(bench, other, "it prepares another claim of the same name")


@scenario("claims", "unprepares a claim again, and one that it does not know")
async def unprepares(bench: DriverBench) -> None:
    claim = await bench.claim(await _some(bench))
    await _prepared(bench, claim)
    for _ in range(2):
        await _unprepared(bench, claim)
    await _unprepared(bench, _STRANGER)


@scenario("claims", "serves the older version that it offers")
async def older(bench: DriverBench) -> None:
    if m.V1BETA1 not in bench.info.supported_versions:
        raise ScenarioSkipped("it does not offer v1beta1.DRAPlugin")
    claim = await bench.claim(await _some(bench))
    prepared = _only(await _done(bench.prepare(claim, service=m.V1BETA1)), claim)
    expect(not prepared.error, prepared.error)
    done = _only(await _done(bench.unprepare(claim, service=m.V1BETA1)), claim)
    expect(not done.error, done.error)


# Health.


@scenario("health", "reports the health of its devices")
async def health(bench: DriverBench) -> None:
    if m.HEALTH not in bench.info.supported_versions:
        raise ScenarioSkipped("it does not offer v1alpha1.DRAResourceHealth")
    grpc = library.load()
    async with connected(bench.endpoint) as channel:
        stream = calls.streamer(channel, WATCH_HEALTH)(Empty())
        try:
            report = await asyncio.wait_for(stream.read(), 5)
        except TimeoutError:
            raise ScenarioFailed("no report within 5 s") from None
        except grpc.aio.AioRpcError as error:
            raise ScenarioFailed(f"{error.code().name}: {error.details()}") from error
        finally:
            stream.cancel()
    expect(report is not grpc.aio.EOF, "the stream ended without a report")
    known = set(await _devices(bench))
    found = {
        (each.device.pool_name, each.device.device_name)
        for each in report.devices
        if each.device is not None
    }
    if strange := found - known:
        raise ScenarioDoubtful(f"it reports devices that it has not published: {sorted(strange)}")


# Restarts.


def _ours(bench: DriverBench) -> None:
    if not bench.command:
        raise ScenarioSkipped("kedge did not start it; --run does")


async def _back(bench: DriverBench) -> None:
    await bench.start()
    expect(await bench.registers(bench.patience), "it did not register")
    await _done(bench.notify())


@scenario("restarts", "registers with a kubelet that begins anew")
async def kubelet(bench: DriverBench) -> None:
    for _ in range(2):
        expect(await bench.registers(5), "it does not answer GetInfo again")
        await _done(bench.notify())


@scenario("restarts", "ends on SIGTERM")
async def ends(bench: DriverBench) -> None:
    _ours(bench)
    expect(await bench.stop(signal.SIGTERM), "it did not end within 5 s of SIGTERM")
    if bench.sockets():
        raise ScenarioDoubtful("its registration socket is left, so that kubelets keep trying it")


@scenario("restarts", "begins again")
async def begins(bench: DriverBench) -> None:
    _ours(bench)
    await _back(bench)
    expect(await bench.published(10), "its slices are gone")


@scenario("restarts", "unprepares a claim that it prepared before it was killed")
async def killed(bench: DriverBench) -> None:
    _ours(bench)
    claim = await bench.claim(await _some(bench))
    await _prepared(bench, claim)
    await bench.stop(signal.SIGKILL)
    await _back(bench)
    await _unprepared(bench, claim)


@scenario("restarts", "prepares a claim that it prepared before it was killed")
async def prepared_before(bench: DriverBench) -> None:
    _ours(bench)
    claim = await bench.claim(await _some(bench))
    before = await _prepared(bench, claim)
    await bench.stop(signal.SIGKILL)
    await _back(bench)
    after = await _prepared(bench, claim)
    await _unprepared(bench, claim)
    if before != after:
        raise ScenarioDoubtful("it answers otherwise than before")
