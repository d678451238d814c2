"""Scenarios of a restarted kubelet and a restarted plugin."""

import os
import signal

from kedge.deviceplugin.check.bench import CallRejected, PluginBench
from kedge.deviceplugin.check.scenario import (
    ScenarioDoubtful,
    ScenarioFailed,
    Scenarios,
    ScenarioSkipped,
    expect,
)

scenario: Scenarios[PluginBench] = Scenarios()

_GROUP = "restarts"
LONGEST = 15.0
"""Seconds that a plugin may take to register again; the sample plugin takes ten."""
BRISK = 4.0


async def _back(bench: PluginBench, number: int, seconds: float) -> bool:
    return await bench.arrives(number, seconds) and await bench.listens(5)


@scenario(_GROUP, "registers again after a kubelet that removed all sockets")
async def restart(bench: PluginBench) -> str:
    number, begun = len(bench.chosen()) + 1, bench.clock.monotonic()
    await bench.vanish()
    bench.clear()
    await bench.serve()
    if not await _back(bench, number, LONGEST):
        raise ScenarioFailed(
            f"it did not within {LONGEST:g} s: pods get no devices until it is restarted"
        )
    bench.restart_seconds = bench.clock.monotonic() - begun
    return f"after {bench.restart_seconds:.1f} s"


@scenario(_GROUP, "has its devices after that")
async def same(bench: PluginBench) -> None:
    try:
        found = {each.id for each in await bench.first_list()}
    except CallRejected as error:
        raise ScenarioFailed(str(error)) from error
    expect(found == {each.id for each in bench.devices}, "they are others than before")


def _brisk(bench: PluginBench) -> None:
    if not 0 < bench.restart_seconds < BRISK:
        raise ScenarioSkipped("it takes too long to register again")


@scenario(_GROUP, "notices a new registration socket")
async def kubelets_socket(bench: PluginBench) -> None:
    _brisk(bench)
    number = len(bench.chosen()) + 1
    await bench.vanish()
    await bench.serve()
    if not await _back(bench, number, BRISK):
        raise ScenarioDoubtful("it does not by that alone; kubelets remove its socket too")


@scenario(_GROUP, "notices that its own socket is gone")
async def own_socket(bench: PluginBench) -> None:
    _brisk(bench)
    number = len(bench.chosen()) + 1
    os.unlink(bench.path)
    if await _back(bench, number, BRISK):
        return
    # A plugin that watches only the other sign must see it now.
    await bench.vanish()
    await bench.serve()
    await _back(bench, number, BRISK)
    raise ScenarioDoubtful("it does not by that alone; kubelets make their own socket anew too")


@scenario(_GROUP, "waits for a kubelet that stays away")
async def absence(bench: PluginBench) -> None:
    _brisk(bench)
    number = len(bench.chosen()) + 1
    await bench.vanish()
    bench.clear()
    await bench.clock.sleep(1.5)
    expect(bench.alive, "it ended instead")
    await bench.serve()
    expect(await _back(bench, number, LONGEST), "it did not register when the kubelet was back")


@scenario(_GROUP, "ends on SIGTERM")
async def ends(bench: PluginBench) -> None:
    if not bench.command:
        raise ScenarioSkipped("kedge did not start it; --run does")
    expect(await bench.stop(signal.SIGTERM), "it did not end within 5 s of SIGTERM")


@scenario(_GROUP, "begins again")
async def begins(bench: PluginBench) -> None:
    if not bench.command:
        raise ScenarioSkipped("it was not started here: see --run")
    number = len(bench.chosen()) + 1
    await bench.start()
    expect(await _back(bench, number, bench.patience), "it did not register")


@scenario(_GROUP, "begins again after it was killed, its old socket still there")
async def killed(bench: PluginBench) -> None:
    if not bench.command:
        raise ScenarioSkipped("it was not started here: see --run")
    number = len(bench.chosen()) + 1
    await bench.stop(signal.SIGKILL)
    await bench.start()
    expect(await _back(bench, number, bench.patience), "it did not register")
    try:
        await bench.first_list()
    except CallRejected as error:
        raise ScenarioFailed(str(error)) from error
