"""The controllers and the scheduler as the API server in the same process sees them."""

from collections.abc import Callable, Iterable

from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import DecisionSource

NOT_STARTED = "not started"


class ControlPlaneComponents:
    """State of the components that run beside the API server.

    They start after the server, because they are its clients, and stop before it. So the server
    is given this object when it is constructed, and they report to the object.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._failures: dict[str, Callable[[], str]] = dict.fromkeys(names, _not_started)
        self._decisions: DecisionSource | None = None

    @property
    def decisions(self) -> DecisionSource | None:
        """The decisions of the scheduler; None while no scheduler runs in this process."""
        return self._decisions

    def set_scheduler(self, scheduler: DecisionSource | None) -> None:
        """Show the decisions of this scheduler from now on; None when it stops."""
        self._decisions = scheduler

    @property
    def names(self) -> list[str]:
        return list(self._failures)

    def report(self, name: str, failure: Callable[[], str]) -> None:
        """Let `failure` say from now on why a component does not work; empty while it does."""
        self._failures[name] = failure

    def failure(self, name: str) -> str:
        """Return why a component does not work; empty if it does."""
        return self._failures[name]()


def _not_started() -> str:
    return NOT_STARTED
