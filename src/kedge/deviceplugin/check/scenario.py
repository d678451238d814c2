"""Scenarios: one thing each that a plugin must do, or had better, and what came of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from kedge.deviceplugin.check.bench import PluginBench


class ScenarioResult(StrEnum):
    """How a scenario ended."""

    OK = "ok"
    WARN = "warn"
    """It works here, but will not everywhere."""
    FAIL = "fail"
    SKIP = "skip"
    """It could not be tried."""


class ScenarioFailed(Exception):
    """The plugin does not do this; why."""


class ScenarioDoubtful(Exception):
    """The plugin does this in a way that may not work elsewhere; why."""


class ScenarioSkipped(Exception):
    """This cannot be tried with this plugin; why."""


Try = Callable[[PluginBench], Awaitable[str | None]]
"""Returns what is worth telling, if anything; raises Failed, Doubtful or Skipped."""


@dataclass(frozen=True)
class Scenario:
    """One thing to try."""

    group: str
    title: str
    attempt: Try
    vital: bool = False
    """Whether there is nothing to try without it."""


class Scenarios(list[Scenario]):
    """What is tried one after the other."""

    def __call__(self, group: str, title: str, *, vital: bool = False) -> Callable[[Try], Try]:
        """A function that tries one thing is the next one."""

        def listed(attempt: Try) -> Try:
            self.append(Scenario(group, title, attempt, vital))
            return attempt

        return listed


def expect(condition: object, why: str) -> None:
    if not condition:
        raise ScenarioFailed(why)
