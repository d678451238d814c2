"""Scenarios of the calls for containers: allocation, start and release."""

import asyncio
import contextlib
import re
import stat
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from kedge.deviceplugin import library, methods
from kedge.deviceplugin import messages as m
from kedge.deviceplugin.check.bench import CallRejected, PluginBench, owner
from kedge.deviceplugin.check.scenario import (
    ScenarioDoubtful,
    ScenarioFailed,
    Scenarios,
    ScenarioSkipped,
    expect,
)
from kedge.deviceplugin.sockets import reachable
from kedge.machinery.names import qualified_name

scenario: Scenarios[PluginBench] = Scenarios()

T = TypeVar("T")

SLOW = 1.0
"""Seconds after which a pod's start is noticeably late."""
TYPICAL = {"PATH": "/bin", "EMPTY": "", "WORDS": "two words", "UNICODE": "käse \N{CHEESE WEDGE}"}
STRANGE_ID = "no-such-device"


def _device(bench: PluginBench) -> str:
    if not bench.healthy:
        raise ScenarioSkipped("it has no healthy device")
    return bench.healthy[0]


async def _done(work: Awaitable[T]) -> T:
    try:
        return await work
    except CallRejected as error:
        raise ScenarioFailed(str(error)) from error


async def _answer(bench: PluginBench) -> m.ContainerAllocateResponse:
    answers = await _done(bench.allocate([_device(bench)]))
    if len(answers) != 1:
        raise ScenarioFailed(f"one container was asked about, {len(answers)} answers came")
    return answers[0]


async def _survives(bench: PluginBench) -> None:
    expect(bench.alive, "it ended")
    await _done(bench.call(methods.OPTIONS, m.Empty(), 5))


# Allocate.


@scenario("allocate", "allocates one device")
async def one(bench: PluginBench) -> None:
    begun = bench.clock.monotonic()
    await _answer(bench)
    if (took := bench.clock.monotonic() - begun) > SLOW:
        raise ScenarioDoubtful(f"it takes {took:.1f} s, and pods wait for it")


@scenario("allocate", "allocates all devices to one container")
async def all_of_them(bench: PluginBench) -> None:
    _device(bench)
    answers = await _done(bench.allocate(bench.healthy))
    expect(len(answers) == 1, f"one container was asked about, {len(answers)} answers came")


@scenario("allocate", "answers for every container in a request")
async def each(bench: PluginBench) -> None:
    groups = [[each] for each in bench.healthy[:3]]
    if len(groups) < 2:
        raise ScenarioSkipped("it has no two healthy devices")
    answers = await _done(bench.allocate(*groups))
    expect(len(answers) == len(groups), f"{len(answers)} answers for {len(groups)} containers")


@scenario("allocate", "allocates a device again")
async def again(bench: PluginBench) -> None:
    """Devices of init containers are given to those that follow."""
    before = await _answer(bench)
    if await _answer(bench) != before:
        raise ScenarioDoubtful("it answers otherwise the second time")


@scenario("allocate", "allocates to many at once")
async def many(bench: PluginBench) -> None:
    device = _device(bench)
    await _done(asyncio.gather(*(bench.allocate([device]) for _ in range(10))))


@scenario("allocate", "refuses a device that it does not have")
async def strange(bench: PluginBench) -> None:
    try:
        await bench.allocate([STRANGE_ID])
    except CallRejected:
        await _survives(bench)
    else:
        raise ScenarioDoubtful("it allocates a device that does not exist")


@scenario("allocate", "lives through a request for nothing")
async def nothing(bench: PluginBench) -> None:
    with contextlib.suppress(CallRejected):
        await bench.allocate()
    with contextlib.suppress(CallRejected):
        await bench.allocate([])
    await _survives(bench)


@scenario("allocate", "sets variables that can be set")
async def variables(bench: PluginBench) -> str | None:
    names = (await _answer(bench)).envs.keys()
    bad = [name for name in names if not name or "=" in name or "\0" in name]
    expect(not bad, f"{bad} cannot be the name of a variable")
    return ", ".join(sorted(names)) or None


@scenario("allocate", "mounts what is there")
async def mounts(bench: PluginBench) -> str | None:
    found = (await _answer(bench)).mounts
    for each in found:
        expect(each.container_path.startswith("/"), f'"{each.container_path}" is no absolute path')
        expect(_exists(each.host_path), f"there is no {each.host_path}")
    paths = [each.container_path for each in found]
    expect(len(set(paths)) == len(paths), "two mounts have the same place")
    return ", ".join(paths) or None


@scenario("allocate", "gives device nodes that are there")
async def nodes(bench: PluginBench) -> str | None:
    found = (await _answer(bench)).devices
    for each in found:
        inside, outside = each.container_path, each.host_path
        expect(inside.startswith("/"), f'"{inside}" is no absolute path')
        expect(_exists(outside), f"there is no {outside}")
        expect(_is_device(outside), f"{outside} is no device")
    return ", ".join(f"{each.container_path} ({each.permissions})" for each in found) or None


@scenario("allocate", "asks for permissions that there are")
async def permissions(bench: PluginBench) -> None:
    for each in (await _answer(bench)).devices:
        named = each.permissions
        expect(named and set(named) <= set("rwm"), f'"{named}" is not made of r, w and m')


@scenario("allocate", "annotates with keys that can be")
async def annotations(bench: PluginBench) -> None:
    for key in (await _answer(bench)).annotations:
        if problems := qualified_name(key):
            raise ScenarioDoubtful(f'"{key}": {problems[0]}')


@scenario("allocate", "names CDI devices as vendor.com/class=name")
async def cdi(bench: PluginBench) -> str | None:
    names = [each.name for each in (await _answer(bench)).cdi_devices]
    for name in names:
        expect(re.fullmatch(r"[\w.-]+/[\w.-]+=[\w.:-]+", name), f'"{name}" is no such name')
    return ", ".join(names) or None


def _exists(path: str) -> bool:
    return Path(path).exists()


def _is_device(path: str) -> bool:
    mode = Path(path).stat().st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISDIR(mode)


# PreStartContainer.


async def _start(bench: PluginBench, env: dict[str, str]) -> None:
    if not bench.options.pre_start_required:
        raise ScenarioSkipped("it does not want PreStartContainer")
    try:
        await bench.pre_start([_device(bench)], env)
    except CallRejected as error:
        if error.code == "DEADLINE_EXCEEDED":
            raise ScenarioFailed(
                "it takes longer than 30 s, and the container never starts"
            ) from error
        if not bench.env and error.code not in ("UNIMPLEMENTED", "UNAVAILABLE", "INTERNAL"):
            raise ScenarioDoubtful(f"it refused: {error}; --env says what it wants") from error
        raise ScenarioFailed(str(error)) from error


@scenario("start", "makes a device ready")
async def start(bench: PluginBench) -> None:
    begun = bench.clock.monotonic()
    await _start(bench, bench.env)
    if (took := bench.clock.monotonic() - begun) > SLOW:
        raise ScenarioDoubtful(f"it takes {took:.1f} s, at every start")


@scenario("start", "makes it ready again for a restart")
async def restart(bench: PluginBench) -> None:
    await _start(bench, bench.env)
    await _start(bench, bench.env)


@scenario("start", "takes the container's variables, or skips them")
async def told(bench: PluginBench) -> None:
    await _start(bench, {**TYPICAL, **bench.env})
    await _survives(bench)


@scenario("start", "takes a megabyte of variables")
async def much(bench: PluginBench) -> None:
    await _start(bench, {**bench.env, "MUCH": "x" * 2**20})
    await _survives(bench)


@scenario("start", "refuses to start with a device that it does not have")
async def stranger(bench: PluginBench) -> None:
    if not bench.options.pre_start_required:
        raise ScenarioSkipped("it does not want PreStartContainer")
    try:
        await bench.pre_start([STRANGE_ID], bench.env)
    except CallRejected:
        await _survives(bench)
    else:
        raise ScenarioDoubtful("it prepares a device that does not exist")


@scenario("start", "lives through a call that it did not ask for")
async def uncalled(bench: PluginBench) -> None:
    if bench.options.pre_start_required:
        raise ScenarioSkipped("it asked for it")
    if not bench.healthy:
        raise ScenarioSkipped("it has no healthy device")
    with contextlib.suppress(CallRejected):
        await bench.pre_start([bench.healthy[0]], {})
    await _survives(bench)


# ReleaseContainer.


@scenario("release", "acknowledges each release of a container, also repeated ones")
async def released(bench: PluginBench) -> None:
    if not bench.options.release_required:
        raise ScenarioSkipped("it does not want ReleaseContainer")
    request = m.ReleaseContainerRequest(devices_ids=[_device(bench)], owner=owner())
    for _ in range(2):
        await _done(bench.call(methods.RELEASE, request))


# Odd company.


@scenario("company", "answers a method that it does not have")
async def unknown(bench: PluginBench) -> None:
    method = methods.Method("v1beta1.DevicePlugin", "NoSuchMethod", m.Empty, m.Empty)
    try:
        await bench.call(method, m.Empty(), 5)
    except CallRejected as error:
        expect(error.code == "UNIMPLEMENTED", f"with {error}, not with UNIMPLEMENTED")
    else:
        raise ScenarioFailed("as if it had it")
    await _survives(bench)


@scenario("company", "lives through noise on its socket")
async def noise(bench: PluginBench) -> None:
    where, held = reachable(bench.path)
    _, writer = await asyncio.open_unix_connection(where)
    held.close()
    writer.write(b"\r\n\0 this is not HTTP/2 \xff" * 100)
    writer.close()
    await _survives(bench)


@scenario("company", "lives through a caller who does not wait")
async def impatient(bench: PluginBench) -> None:
    device = _device(bench)
    request = m.AllocateRequest(
        container_requests=[m.ContainerAllocateRequest(devices_ids=[device])]
    )
    async with bench.connected() as channel:
        call = methods.caller(channel, methods.ALLOCATE)(request)
        call.cancel()  # type: ignore[attr-defined]
    await _survives(bench)


@scenario("company", "lets callers come and go")
async def guests(bench: PluginBench) -> None:
    grpc = library.load()
    for _ in range(20):
        try:
            async with bench.connected() as channel:
                await methods.caller(channel, methods.OPTIONS)(m.Empty(), timeout=5)
        except grpc.aio.AioRpcError as error:
            raise ScenarioFailed(f"{error.code().name}: {error.details()}") from error
