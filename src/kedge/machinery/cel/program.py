"""A compiled expression: its result type, the variables it uses, its closure, its estimate."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kedge.machinery.cel.checker import check, references
from kedge.machinery.cel.compiler import compile_tree
from kedge.machinery.cel.environment import Environment
from kedge.machinery.cel.errors import CelBudgetError, CelError, CelIssues, CelSource
from kedge.machinery.cel.estimate import Sizes, estimated
from kedge.machinery.cel.literal_checks import check_literals
from kedge.machinery.cel.parser import parse
from kedge.machinery.cel.run import OVER_COST, PER_CALL_LIMIT, Run, no_overload
from kedge.machinery.cel.syntax import Node
from kedge.machinery.cel.types import CelType
from kedge.machinery.patience import spend

_CHARACTER_COST: Final = 10
"""Compiling a character of an expression takes up to 8 microseconds, as long as so many units of
evaluation; an expression may have 100,000."""


class CelFoldError(CelError):
    """A constant part of an expression always fails."""


class CelProgram:
    """An expression that can be evaluated."""

    __slots__ = ("_closure", "_names", "_padding", "expression", "tree", "type", "uses")

    def __init__(self, expression: str, environment: Environment) -> None:
        """Compile; CelError with the issues as cel-go prints them, PatienceError on an event loop
        that cannot wait for it."""
        spend(len(expression) * _CHARACTER_COST)
        self.expression = expression
        issues = CelIssues(CelSource(expression))
        tree = parse(expression, issues, environment.macros)
        if tree is None:
            raise CelError(str(issues))
        self.tree: Final[Node] = tree
        try:
            self.type: Final[CelType] = check(tree, environment, issues)
            if not issues:
                check_literals(tree, issues)
            if issues:
                raise CelError(str(issues))
            self.uses: Final = references(tree)
            try:
                self._closure, room = compile_tree(tree, environment)
            except CelError as error:
                raise CelFoldError(f"program instantiation failed: {error}") from None
        except RecursionError:
            issues.add(-1, "expression recursion limit exceeded: 250")
            raise CelError(str(issues)) from None
        self._names = tuple(environment.slots)
        self._padding = (None,) * (room - len(self._names))
        """Room for the variables of loops."""

    def estimate(self, sizes: Sizes | None = None) -> int:
        """Return the most that an evaluation may cost, by the sizes that a schema allows."""
        return estimated(self.tree, sizes)

    def run(
        self,
        values: Mapping[str, Any],
        *,
        limit: int = PER_CALL_LIMIT,
        patience: int | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> tuple[Any, int]:
        """Return the value of the expression, and what the evaluation cost."""
        slots: list[Any] = [*map(values.get, self._names), *self._padding]
        state = Run(slots, limit, patience, interrupted)
        return self.finish(state), state.cost

    def finish(self, state: Run) -> Any:
        """Evaluate with a prepared state."""
        try:
            value = self._closure(state)
        except CelBudgetError:
            raise
        except CelError:
            if state.cost > state.limit:
                raise CelBudgetError(OVER_COST) from None
            raise
        except (TypeError, AttributeError, ValueError, OverflowError, LookupError):
            raise no_overload() from None
        except RecursionError:
            raise CelError("expression recursion limit exceeded: 250") from None
        if state.cost > state.limit:
            raise CelBudgetError(OVER_COST)
        return value

    def state(
        self,
        values: Mapping[str, Any],
        limit: int = PER_CALL_LIMIT,
        patience: int | None = None,
    ) -> Run:
        """Return the state of an evaluation, for callers that need the cost of a failed one."""
        return Run([*map(values.get, self._names), *self._padding], limit, patience)
