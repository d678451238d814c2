"""How properties are tested, and how many tests a run may skip or try again.

Properties get the same examples every time, so that a change is judged by itself and not by its
luck. `--hypothesis-profile=exploring` looks for new ones.
"""

import functools
import gc
import os
import sys

import pytest
import yaml
from hypothesis import HealthCheck, Phase, settings

# libyaml reads the tables of cases many times as fast as the parser in Python.
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What is collected lives as long as the run: no search for garbage need look at it.
gc.disable()

settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("exploring", deadline=None)
# tools/mutate.py: a mutant need only be noticed, so no smaller example of the failure is searched.
settings.register_profile(
    "mutants",
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")


MOST_SKIPPED = 5
"""Tests that one run may skip as root; a machine that runs kedge has what nearly all need."""
MOST_SECOND_TRIES = 5
"""Tests that one run may try again."""
RUNS_IN_A_ROW = 3
"""A test that needs a second try in so many successive runs is broken, not late."""
REMEMBERED = "kedge/second_tries"
"""Under this key pytest's cache has the number of successive runs, by test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--most-skipped",
        type=int,
        # Many tests need root, and say so; without it their number is printed only.
        default=MOST_SKIPPED if os.geteuid() == 0 else sys.maxsize,
        help="tests that may be skipped before the run fails",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which too many tests were skipped or tried again."""
    if not hasattr(session.config, "workerinput") and _complaints(session.config):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print why the first try of a test failed, which pytest does not if the second one passes."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    skipped, again = _counts(config)
    terminalreporter.write_line(f"skipped tests: {skipped}, second tries: {again}")
    for complaint in _complaints(config):
        terminalreporter.write_line(complaint, red=True)


def _counts(config: pytest.Config) -> tuple[int, int]:
    return len(_reports(config, "skipped")), len(
        {each.nodeid for each in _reports(config, "rerun")}
    )


def _reports(config: pytest.Config, category: str) -> list[pytest.TestReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [*reporter.stats.get(category, [])] if reporter else []


def _complaints(config: pytest.Config) -> list[str]:
    """Return why the run fails though its tests may have passed."""
    (skipped, again), most = _counts(config), config.getoption("--most-skipped")
    found = [f"{name} needed a second try in {RUNS_IN_A_ROW} runs" for name in _late(config)]
    if skipped > most:
        found.append(f"{skipped} tests were skipped, but at most {most} may be: see --most-skipped")
    if again > MOST_SECOND_TRIES:
        found.append(f"{again} tests needed a second try, but at most {MOST_SECOND_TRIES} may")
    return found


@functools.cache
def _late(config: pytest.Config) -> list[str]:
    """Count the runs in a row in which tests needed a second try; return those with too many."""
    if (cache := getattr(config, "cache", None)) is None:
        return []
    again = {each.nodeid for each in _reports(config, "rerun")}
    passed = {each.nodeid for each in _reports(config, "passed")} - again
    runs = {name: n for name, n in cache.get(REMEMBERED, {}).items() if name not in passed}
    runs |= {name: runs.get(name, 0) + 1 for name in again}
    cache.set(REMEMBERED, runs)
    return sorted(name for name in again if runs[name] >= RUNS_IN_A_ROW)
