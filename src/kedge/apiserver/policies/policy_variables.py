"""The variables of a policy, evaluated when an expression first uses them."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kedge.machinery import patience
from kedge.machinery.cel import PER_CALL_LIMIT, CelBudgetError, CelError, CelProgram
from kedge.machinery.cel.libraries.authorizer import AUTHORIZER, RESOURCE_CHECK, AbsentAuthorizer

_NO_AUTHORIZER: Final = {
    name: AbsentAuthorizer(name, type)
    for name, type in (("authorizer", AUTHORIZER), ("authorizer.requestResource", RESOURCE_CHECK))
}


def without_authorizer(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for messages and audit annotations.

    Upstream gives them no authorizer and evaluates the variables anew, so variables that ask the
    authorizer fail there, even those that a validation has used before.
    """
    kept = {**values, **_NO_AUTHORIZER}
    variables: PolicyVariables = values["variables"]
    kept["variables"] = variables.anew(kept)
    return kept


class PolicyVariables:
    """The value of `variables` in expressions; each is evaluated at most once per request."""

    cel_type: ClassVar[str] = "kubernetes.variables"

    def __init__(self, programs: Mapping[str, CelProgram], values: dict[str, Any]) -> None:
        self._programs = programs
        self._values = values
        """The other names that expressions know; `variables` itself is among them."""
        self._known: dict[str, Any] = {}
        self._failed: dict[str, CelError] = {}
        self._cost = 0

    def anew(self, values: dict[str, Any]) -> "PolicyVariables":
        """Return the same variables, not evaluated, for other values."""
        return PolicyVariables(self._programs, values)

    def cel_has(self, name: str) -> bool:
        return name in self._programs

    def cel_field(self, name: str) -> Any:
        """Return the value of a variable."""
        if name in self._failed:
            raise self._failed[name]
        if name not in self._known:
            self._known[name] = self._evaluated(name)
        return self._known[name]

    def take_cost(self) -> int:
        """Return what the variables have cost since this was last asked."""
        cost, self._cost = self._cost, 0
        return cost

    def _evaluated(self, name: str) -> Any:
        program = self._programs.get(name)
        if program is None:
            raise CelError(f"no such key: {name}")
        state = program.state(self._values, PER_CALL_LIMIT, patience.left())
        try:
            return program.finish(state)
        except patience.PatienceError:
            raise
        except CelError as error:
            why = f'composited variable "{name}" fails to evaluate: {error}'
            kind = CelBudgetError if isinstance(error, CelBudgetError) else CelError
            self._failed[name] = kind(why)
            raise self._failed[name] from None
        finally:
            self._cost += state.cost
            patience.spend(state.cost)
