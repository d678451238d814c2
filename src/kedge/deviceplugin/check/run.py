"""The whole check: every scenario in turn, and what came of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kedge.deviceplugin.check import calls, listing, registration, restarts
from kedge.deviceplugin.check.bench import Bench
from kedge.deviceplugin.check.scenario import (
    Doubtful,
    Failed,
    Scenario,
    Skipped,
    Verdict,
)

SCENARIOS: Final = (
    *registration.scenario,
    *listing.scenario,
    *calls.scenario,
    *restarts.scenario,
)


@dataclass(frozen=True)
class Finding:
    """What came of one scenario."""

    group: str
    title: str
    verdict: Verdict
    detail: str
    seconds: float


async def check(bench: Bench, tell: Callable[[Finding], None]) -> list[Finding]:
    """Try everything; each finding is told as soon as it is there. Raises Occupied or OSError."""
    await bench.open()
    findings: list[Finding] = []
    hopeless = False
    try:
        for each in SCENARIOS:
            found = _not_tried(each) if hopeless else await _try(each, bench)
            hopeless = hopeless or (each.vital and found.verdict is Verdict.FAIL)
            findings.append(found)
            tell(found)
    finally:
        await bench.close()
    return findings


async def _try(scenario: Scenario, bench: Bench) -> Finding:
    begun = bench.clock.monotonic()
    verdict, detail = Verdict.OK, ""
    try:
        detail = await scenario.attempt(bench) or ""
    except Doubtful as error:
        verdict, detail = Verdict.WARN, str(error)
    except Skipped as error:
        verdict, detail = Verdict.SKIP, str(error)
    except (Failed, OSError, TimeoutError) as error:
        verdict, detail = Verdict.FAIL, str(error)
    took = bench.clock.monotonic() - begun
    return Finding(scenario.group, scenario.title, verdict, detail, round(took, 3))


def _not_tried(scenario: Scenario) -> Finding:
    detail = "nothing can be tried without what failed before"
    return Finding(scenario.group, scenario.title, Verdict.SKIP, detail, 0.0)


def count(findings: Iterable[Finding], verdict: Verdict) -> int:
    return sum(each.verdict is verdict for each in findings)
