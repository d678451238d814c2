"""matchConditions: expressions that all must hold before a webhook or policy is asked."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import lru_cache
from threading import Lock
from typing import Any, Final

from kedge.machinery import cel
from kedge.machinery.cel import CelError
from kedge.machinery.patience import PatienceError, on_event_loop

BUDGET: Final = 2_500_000
"""The cost limit of all conditions of one webhook or policy together."""
OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


@lru_cache(maxsize=2)
def _stored(params: bool) -> "cel.Environment":
    """Return the environment of stored conditions. An older release may have accepted more than a
    new condition may have."""
    from kedge.machinery.cel.macros import WITH_BINDINGS

    return cel.Environment(cel.uses.match_conditions(params).variables, macros=WITH_BINDINGS)


class Conditions:
    """The conditions of one webhook or policy, compiled when the first request asks for them."""

    __slots__ = ("_compiled", "_compiling", "_expressions", "_params")

    def __init__(self, expressions: Iterable[str], *, params: bool = False) -> None:
        self._expressions = tuple(expressions)
        self._params = params
        self._compiling = Lock()
        """Held by the thread that compiles long conditions; others wait for its result."""
        self._compiled: list[cel.CelCondition | CelError] | None = None

    async def hold(self, values: Mapping[str, Any]) -> bool:
        """Return whether all are true. If one is false, errors of the others do not count."""
        try:
            with on_event_loop():
                return self._hold(values, cel.LOOP_PATIENCE)
        except PatienceError:
            return await asyncio.to_thread(self._hold_in_thread, values)

    def _hold_in_thread(self, values: Mapping[str, Any]) -> bool:
        with self._compiling:
            self._conditions()
        return self._hold(values, None)

    def _hold(self, values: Mapping[str, Any], patience: int | None) -> bool:
        errors: list[str] = []
        left = BUDGET
        for condition in self._conditions():
            try:
                if isinstance(condition, CelError):
                    raise condition
                truth, cost = condition.costed(values, min(left, cel.PER_CALL_LIMIT), patience)
                left -= cost
                if patience is not None:  # for all conditions together
                    patience = max(0, patience - cost)
                if not truth:
                    return False
            except cel.CelPatienceError:
                raise
            except CelError as error:
                if left < cel.PER_CALL_LIMIT:
                    raise CelError(OUT_OF_BUDGET) from None
                errors.append(str(error))
        if errors:
            once = list(dict.fromkeys(errors))
            raise CelError(once[0] if len(once) == 1 else f"[{', '.join(once)}]")
        return True

    def _conditions(self) -> list["cel.CelCondition | CelError"]:
        if self._compiled is None:
            self._compiled = [self._condition(expression) for expression in self._expressions]
        return self._compiled

    def _condition(self, expression: str) -> "cel.CelCondition | CelError":
        try:
            return cel.CelCondition(expression, _stored(self._params), allow_dyn=True)
        except CelError as error:
            return error
