"""Scenarios: one requirement or recommendation each, and its result."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

B = TypeVar("B")
"""A bench, on which plugins or drivers are checked."""


class ScenarioResult(StrEnum):
    """The result of a scenario."""

    OK = "ok"
    WARN = "warn"
    """It works here, but will not everywhere."""
    FAIL = "fail"
    SKIP = "skip"
    """It could not be tried."""


class ScenarioFailed(Exception):
    """The plugin does not meet the requirement; the message says why."""


class ScenarioDoubtful(Exception):
    """The plugin meets the requirement in a way that may fail elsewhere; the message says why."""


class ScenarioSkipped(Exception):
    """The scenario does not apply to this plugin; the message says why."""


Try = Callable[[B], Awaitable[str | None]]
"""Returns a remark or nothing; raises ScenarioFailed, ScenarioDoubtful or ScenarioSkipped."""


@dataclass(frozen=True)
class Scenario(Generic[B]):
    """One requirement and the function that checks it."""

    group: str
    title: str
    attempt: Try[B]
    vital: bool = False
    """Whether there is nothing to try without it."""


class Scenarios(list[Scenario[B]]):
    """A list of scenarios, run in order."""

    def __call__(
        self, group: str, title: str, *, vital: bool = False
    ) -> Callable[[Try[B]], Try[B]]:
        """A function that tries one thing is the next one."""

        def listed(attempt: Try[B]) -> Try[B]:
            self.append(Scenario(group, title, attempt, vital))
            return attempt

        return listed


def expect(condition: object, why: str) -> None:
    if not condition:
        raise ScenarioFailed(why)
