"""What is found out about plugins, good and bad."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kedge.deviceplugin import ContainerAllocateResponse, Device, DeviceSpec, Mount, Owner
from kedge.deviceplugin.check.bench import DirectoryInUse, PluginBench
from kedge.deviceplugin.check.run import SCENARIOS, Finding, check
from kedge.deviceplugin.check.scenario import ScenarioResult
from kedge.deviceplugin.messages import DevicePluginOptions
from kedge.machinery.clock import SystemClock
from kedge.testing.device_plugin import ScriptedPlugin

ALL = DevicePluginOptions(
    pre_start_required=True, get_preferred_allocation_available=True, release_required=True
)


class Choosing(ScriptedPlugin):
    """A plugin that does everything, and well."""

    async def prefer(
        self, available: Sequence[str], included: Sequence[str], size: int
    ) -> Sequence[str]:
        rest = [each for each in available if each not in included]
        return [*included, *rest][:size]

    async def pre_start(self, ids: Sequence[str], env: Any, owner: Owner | None) -> None:
        assert set(ids) <= {each.id for each in self.offered}


@contextlib.asynccontextmanager
async def running(plugin: ScriptedPlugin, directory: Path) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(plugin.serve(directory))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def checked(plugin: ScriptedPlugin, directory: Path) -> dict[str, Finding]:
    """Findings by what was tried."""
    told: list[Finding] = []
    async with running(plugin, directory):
        bench = PluginBench(directory=directory, clock=SystemClock(), patience=5)
        findings = await check(bench, told.append)
    assert told == findings
    return {each.title: each for each in findings}


def verdicts(findings: dict[str, Finding], verdict: ScenarioResult) -> set[str]:
    return {title for title, each in findings.items() if each.verdict is verdict}


def test_there_are_more_than_thirty_scenarios_and_no_two_are_called_the_same() -> None:
    titles = [each.title for each in SCENARIOS]
    assert len(titles) == len(set(titles)) > 30


async def test_a_good_plugin_passes(tmp_path: Path) -> None:
    plugin = Choosing(options=ALL, ids=[f"device-{i}" for i in range(1000)])
    node = DeviceSpec(container_path="/dev/x", host_path="/dev/null", permissions="rw")
    mount = Mount(container_path="/x", host_path=str(tmp_path))
    plugin.answer = ContainerAllocateResponse(devices=[node], mounts=[mount], envs={"A": "1"})
    found = await checked(plugin, tmp_path)
    assert verdicts(found, ScenarioResult.FAIL) == verdicts(found, ScenarioResult.WARN) == set()
    assert verdicts(found, ScenarioResult.SKIP) == {
        "lives through a call that it did not ask for",
        "ends on SIGTERM",
        "begins again",
        "begins again after it was killed, its old socket still there",
    }


async def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(options=ALL)
    plugin.offered = [Device("a"), Device("a"), Device("b", "Fine"), Device("c" * 64)]
    plugin.preferred = ["z", "y"]
    node = DeviceSpec(container_path="dev", host_path="/nowhere", permissions="x")
    plugin.answer = ContainerAllocateResponse(
        devices=[node], envs={"A=B": "1"}, mounts=[Mount(container_path="/x", host_path="/nowhere")]
    )
    found = await checked(plugin, tmp_path)
    assert verdicts(found, ScenarioResult.FAIL) == {
        "gives each device a name of its own",
        "says Healthy or Unhealthy",
        "keeps the stream open",
        "chooses as many devices as are wanted",
        "chooses among those that are free",
        "includes what must be included",
        "sets variables that can be set",
        "mounts what is there",
        "gives device nodes that are there",
        "asks for permissions that there are",
    }
    assert verdicts(found, ScenarioResult.WARN) == {
        "gives devices short names",
        "refuses to start with a device that it does not have",
    }
    assert found["mounts what is there"].detail == "there is no /nowhere"


async def test_a_plugin_that_does_not_come_leaves_nothing_to_try(tmp_path: Path) -> None:
    bench = PluginBench(directory=tmp_path, clock=SystemClock(), patience=0.1)
    findings = await check(bench, lambda finding: None)
    assert findings[0].verdict is ScenarioResult.FAIL
    assert "no registration within 0.1 s" in findings[0].detail
    assert {each.verdict for each in findings[1:]} == {ScenarioResult.SKIP}
    assert os.listdir(tmp_path) == []


async def test_a_directory_that_somebody_serves_is_left_alone(tmp_path: Path) -> None:
    bench = PluginBench(directory=tmp_path, clock=SystemClock(), patience=1)
    await bench.open()
    other = PluginBench(directory=tmp_path, clock=SystemClock(), patience=1)
    with pytest.raises(DirectoryInUse, match="stop it, or choose another directory"):
        await other.open()
    await bench.close()
