"""Conditions: expressions that are true or false."""

from collections.abc import Mapping
from typing import Any

from kedge.machinery.cel.environment import Environment
from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.estimate import Sizes
from kedge.machinery.cel.program import CelFoldError, CelProgram
from kedge.machinery.cel.run import PER_CALL_LIMIT, CelPatienceError, no_overload


class CelCondition:
    """An expression that is true or false."""

    __slots__ = ("_program", "expression")

    def __init__(
        self, expression: str, environment: Environment, *, allow_dyn: bool = False
    ) -> None:
        self.expression = expression
        try:
            self._program = CelProgram(expression, environment)
        except CelFoldError:
            raise
        except CelError as error:
            raise CelError(f"compilation failed: {error}") from None
        kind = self._program.type.kind
        if kind != "bool" and not (allow_dyn and kind == "dyn"):
            if allow_dyn:
                found = f"must evaluate to bool or the unknown type, not {self._program.type}"
                raise CelError(found)
            raise CelError(f"must evaluate to bool but got {self._program.type}")

    def estimate(self, sizes: Sizes | None = None) -> int:
        """Return the most that an evaluation may cost, by the sizes that values can have."""
        return self._program.estimate(sizes)

    def holds(
        self, values: Mapping[str, Any], limit: int = PER_CALL_LIMIT, patience: int | None = None
    ) -> bool:
        """Return whether it is true of plain documents."""
        return self.costed(values, limit, patience)[0]

    def costed(
        self, values: Mapping[str, Any], limit: int = PER_CALL_LIMIT, patience: int | None = None
    ) -> tuple[bool, int]:
        """Return whether it is true, and what the evaluation cost."""
        try:
            truth, cost = self._program.run(values, limit=limit, patience=patience)
            if not isinstance(truth, bool):
                raise no_overload()
        except CelPatienceError:
            raise
        except CelError as error:
            raise CelError(f"expression '{self.expression}' resulted in error: {error}") from None
        return truth, cost
