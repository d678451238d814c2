"""One evaluation: the values of variables, the cost so far and when to stop."""

from collections.abc import Callable
from typing import Any, Final

from kedge.machinery.cel.errors import CelBudgetError, CelError
from kedge.machinery.patience import LOOP_PATIENCE, PatienceError

__all__ = ["INTERRUPTED", "LOOP_PATIENCE", "OVER_COST", "PER_CALL_LIMIT", "CelPatienceError", "Run"]

PER_CALL_LIMIT: Final = 1_000_000
"""The cost limit of one evaluation."""
_BETWEEN_CHECKS: Final = 2_000
"""How much cost passes between two looks at the clock: less than a millisecond."""

OVER_COST: Final = "operation cancelled: actual cost limit exceeded"
INTERRUPTED: Final = "operation interrupted"


class CelPatienceError(CelBudgetError, PatienceError):
    """An evaluation takes longer than the event loop may wait; start it again in a thread."""


class Run:
    """The state of one evaluation. Closures add to `cost` before they do work."""

    __slots__ = ("cost", "interrupted", "limit", "next_check", "patience", "values")

    def __init__(
        self,
        values: list[Any],
        limit: int = PER_CALL_LIMIT,
        patience: int | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> None:
        self.values = values
        self.cost = 0
        self.limit = limit
        self.patience = patience
        self.interrupted = interrupted
        """Tells whether the time for the evaluation is over."""
        self.next_check = limit if limit < _BETWEEN_CHECKS else _BETWEEN_CHECKS

    def check(self) -> None:
        """Stop if the evaluation costs too much or takes too long."""
        if self.cost > self.limit:
            raise CelBudgetError(OVER_COST)
        if self.patience is not None and self.cost > self.patience:
            raise CelPatienceError("too long for the event loop")
        if self.interrupted is not None and self.interrupted():
            raise CelBudgetError(INTERRUPTED)
        self.next_check = min(self.limit, self.cost + _BETWEEN_CHECKS)


def no_overload() -> CelError:
    """Return the error of an operation on values of the wrong types."""
    return CelError("no such overload")
