"""CEL, the language of rules, policies and selectors: the one door to the engine.

Compile with `CelProgram(expression, environment)`, where `uses` has an environment for each use,
and evaluate with `CelProgram.run`. An evaluation that may be long takes `patience=LOOP_PATIENCE`
on the event loop and is started again in a thread if it raises CelPatienceError.
"""

from typing import TYPE_CHECKING

from kedge.machinery.lazy_members import lazy_members

if TYPE_CHECKING:
    from kedge.machinery.cel import uses
    from kedge.machinery.cel.condition import CelCondition
    from kedge.machinery.cel.environment import Environment
    from kedge.machinery.cel.errors import CelBudgetError, CelError
    from kedge.machinery.cel.program import CelFoldError, CelProgram
    from kedge.machinery.cel.run import LOOP_PATIENCE, PER_CALL_LIMIT, CelPatienceError

__all__ = [
    "LOOP_PATIENCE",
    "PER_CALL_LIMIT",
    "CelBudgetError",
    "CelCondition",
    "CelError",
    "CelFoldError",
    "CelPatienceError",
    "CelProgram",
    "Environment",
    "uses",
]

__getattr__ = lazy_members(
    __name__,
    {
        "CelBudgetError": "kedge.machinery.cel.errors",
        "CelCondition": "kedge.machinery.cel.condition",
        "CelError": "kedge.machinery.cel.errors",
        "CelFoldError": "kedge.machinery.cel.program",
        "CelPatienceError": "kedge.machinery.cel.run",
        "CelProgram": "kedge.machinery.cel.program",
        "Environment": "kedge.machinery.cel.environment",
        "LOOP_PATIENCE": "kedge.machinery.cel.run",
        "PER_CALL_LIMIT": "kedge.machinery.cel.run",
        "uses": "kedge.machinery.cel.uses",
    },
)
