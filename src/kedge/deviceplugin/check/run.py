"""Runs all scenarios and collects their results."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from kedge.deviceplugin.check import calls, listing, registration, restarts
from kedge.deviceplugin.check.bench import PluginBench
from kedge.deviceplugin.check.scenario import (
    Scenario,
    ScenarioDoubtful,
    ScenarioFailed,
    ScenarioResult,
    ScenarioSkipped,
)
from kedge.machinery.clock import Clock

SCENARIOS: Final[Sequence[Scenario[PluginBench]]] = (
    *registration.scenario,
    *listing.scenario,
    *calls.scenario,
    *restarts.scenario,
)


class Finding(msgspec.Struct, frozen=True):
    """The result of one scenario."""

    group: str
    title: str
    verdict: ScenarioResult
    detail: str
    seconds: float


class CheckBench(Protocol):
    """Everything that scenarios need."""

    @property
    def clock(self) -> Clock: ...

    async def open(self) -> None:
        """Begin. Raises DirectoryInUse or OSError."""
        ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=CheckBench)


async def check(bench: PluginBench, tell: Callable[[Finding], None]) -> list[Finding]:
    """Check a device plugin, and report each finding at once. Raises DirectoryInUse or OSError."""
    return await run_scenarios(SCENARIOS, bench, tell)


async def run_scenarios(
    scenarios: Sequence[Scenario[C]], bench: C, tell: Callable[[Finding], None]
) -> list[Finding]:
    """Run scenarios and report each finding at once. Raises DirectoryInUse or OSError."""
    await bench.open()
    findings: list[Finding] = []
    hopeless = False
    try:
        for each in scenarios:
            found = _not_tried(each) if hopeless else await _try(each, bench)
            hopeless = hopeless or (each.vital and found.verdict is ScenarioResult.FAIL)
            findings.append(found)
            tell(found)
    finally:
        await bench.close()
    return findings


async def _try(scenario: Scenario[C], bench: C) -> Finding:
    begun = bench.clock.monotonic()
    verdict, detail = ScenarioResult.OK, ""
    try:
        detail = await scenario.attempt(bench) or ""
    except ScenarioDoubtful as error:
        verdict, detail = ScenarioResult.WARN, str(error)
    except ScenarioSkipped as error:
        verdict, detail = ScenarioResult.SKIP, str(error)
    except (ScenarioFailed, OSError, TimeoutError) as error:
        verdict, detail = ScenarioResult.FAIL, str(error)
    took = bench.clock.monotonic() - begun
    return Finding(scenario.group, scenario.title, verdict, detail, round(took, 3))


def _not_tried(scenario: Scenario[C]) -> Finding:
    detail = "an earlier check failed that this one needs"
    return Finding(scenario.group, scenario.title, ScenarioResult.SKIP, detail, 0.0)


def count(findings: Iterable[Finding], verdict: ScenarioResult) -> int:
    return sum(each.verdict is verdict for each in findings)
