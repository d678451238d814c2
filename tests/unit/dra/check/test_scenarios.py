"""What is found out about drivers, good and bad."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.model import ObjectMeta
from kedge.deviceplugin import library
from kedge.deviceplugin.check.run import Finding, run_scenarios
from kedge.deviceplugin.check.scenario import ScenarioResult
from kedge.dra import AllocatedClaim, PreparedDevice
from kedge.dra import messages as m
from kedge.dra.check.driver_bench import NODE, DriverBench
from kedge.dra.check.scenarios import scenario
from kedge.machinery.clock import SystemClock
from kedge.testing.dra_driver import ScriptedDriver
from kedge.testing.local_server import LocalServer


class LocalBench(DriverBench):
    """A bench whose server is in the same process."""

    async def open(self) -> None:
        await asyncio.to_thread(library.load)
        self.registry.mkdir(parents=True, exist_ok=True)
        await self.client.create(node.RESOURCE, Node(metadata=ObjectMeta(name=NODE)))

    async def close(self) -> None:
        await self.stop()


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


async def checked(
    server: LocalServer, driver: ScriptedDriver | None, directory: Path
) -> dict[str, Finding]:
    """Findings by what was tried."""
    bench = LocalBench(
        directory=directory, clock=SystemClock(), patience=5 if driver is not None else 0.1
    )
    bench._client = server.client
    async with contextlib.AsyncExitStack() as stack:
        if driver is not None:
            driver.node = NODE
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            stack.callback(tasks.create_task(driver.serve(directory)).cancel)
        found = await run_scenarios(scenario, bench, lambda finding: None)
    return {each.title: each for each in found}


def verdicts(findings: dict[str, Finding], verdict: ScenarioResult) -> set[str]:
    return {title for title, each in findings.items() if each.verdict is verdict}


def test_no_two_scenarios_are_called_the_same() -> None:
    titles = [each.title for each in scenario]
    assert len(titles) == len(set(titles)) > 25


async def test_a_good_driver_passes(server: LocalServer, tmp_path: Path) -> None:
    found = await checked(server, ScriptedDriver(server.client), tmp_path)
    assert verdicts(found, ScenarioResult.FAIL) == verdicts(found, ScenarioResult.WARN) == set()
    assert verdicts(found, ScenarioResult.SKIP) == {
        "ends on SIGTERM",
        "begins again",
        "unprepares a claim that it prepared before it was killed",
        "prepares a claim that it prepared before it was killed",
    }


class Careless(ScriptedDriver):
    """A driver that looks at no claim, and names what is not there."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(server.client)
        self.reported = {"elsewhere": m.HEALTHY_DEVICE}
        self._count = 0

    async def _allocated(self, claim: m.ClaimReference) -> AllocatedClaim:
        return AllocatedClaim(namespace=claim.namespace, name=claim.name, uid=claim.uid)

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice]:
        self._count += 1
        ids = [f"no cdi name {self._count}"]
        return [
            PreparedDevice(request_names=["x"], pool_name="p", device_name="d", cdi_device_ids=ids)
        ]


async def test_what_is_wrong_is_named(server: LocalServer, tmp_path: Path) -> None:
    found = await checked(server, Careless(server), tmp_path)
    assert verdicts(found, ScenarioResult.FAIL) == {
        "names the devices of the claim",
        "names CDI devices that can be",
        "refuses a claim that does not exist",
        "refuses a claim that is not allocated",
        "refuses a claim that has been replaced",
    }
    assert verdicts(found, ScenarioResult.WARN) == {
        "prepares a claim again",
        "reports the health of its devices",
    }


async def test_a_driver_that_does_not_come_leaves_nothing_to_try(
    server: LocalServer, tmp_path: Path
) -> None:
    first, *others = (await checked(server, None, tmp_path)).values()
    assert first.verdict is ScenarioResult.FAIL
    assert first.detail == (
        f"no driver at a socket in {tmp_path / 'plugins_registry'} within 0.1 s"
    )
    assert {each.verdict for each in others} == {ScenarioResult.SKIP}
