"""matchConditions: expressions that all must hold before a webhook is called."""

from collections.abc import Iterable, Mapping
from typing import Any

from kedge.machinery.cel import CelCondition, CelError

VARIABLES = ("object", "oldObject", "request")


class Conditions:
    """The conditions of one webhook, compiled when the first request asks for them."""

    __slots__ = ("_compiled", "_expressions")

    def __init__(self, expressions: Iterable[str]) -> None:
        self._expressions = tuple(expressions)
        self._compiled: list[CelCondition | CelError] | None = None

    def hold(self, values: Mapping[str, Any]) -> bool:
        """Whether all are true. One that is false decides, whatever is wrong with the others."""
        errors: list[str] = []
        for condition in self._conditions():
            try:
                if isinstance(condition, CelError):
                    raise condition
                if not condition.holds(values):
                    return False
            except CelError as error:
                errors.append(str(error))
        if errors:
            once = list(dict.fromkeys(errors))
            raise CelError(once[0] if len(once) == 1 else f"[{', '.join(once)}]")
        return True

    def _conditions(self) -> list[CelCondition | CelError]:
        if self._compiled is None:
            self._compiled = [_compiled(expression) for expression in self._expressions]
        return self._compiled


def _compiled(expression: str) -> CelCondition | CelError:
    try:
        return CelCondition(expression, VARIABLES)
    except CelError as error:
        return error
