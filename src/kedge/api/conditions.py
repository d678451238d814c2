"""Rules for lists of conditions."""

import re
from collections.abc import Iterator, Sequence

from kedge.api import rules
from kedge.api.model import Condition
from kedge.machinery import names
from kedge.machinery.errors import FieldError

STATUSES = ("False", "True", "Unknown")
REASON_LIMIT = 1024
MESSAGE_LIMIT = 32 * 1024

_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_is_reason = re.compile(_REASON).fullmatch
_BAD_REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' "
    "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', "
    f"regex used for validation is '{_REASON}')"
)


def validate_conditions(path: str, conditions: Sequence[Condition]) -> Iterator[FieldError]:
    """Everything wrong with the conditions of an object."""
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        if condition.type in seen:
            yield FieldError.duplicate(f"{path}[{i}].type", condition.type)
        seen.add(condition.type)
        yield from _condition(condition, f"{path}[{i}]")


def _condition(condition: Condition, path: str) -> Iterator[FieldError]:
    yield from rules.problems(f"{path}.type", condition.type, names.qualified_name(condition.type))
    if condition.status not in STATUSES:
        yield FieldError.not_supported(f"{path}.status", condition.status, STATUSES)
    if condition.observedGeneration < 0:
        why = "must be greater than or equal to zero"
        yield FieldError.invalid(f"{path}.observedGeneration", condition.observedGeneration, why)
    if not condition.lastTransitionTime:
        yield FieldError.required(f"{path}.lastTransitionTime")
    if not condition.reason:
        yield FieldError.required(f"{path}.reason")
    elif not _is_reason(condition.reason):
        yield FieldError.invalid(f"{path}.reason", condition.reason, _BAD_REASON)
    if len(condition.reason) > REASON_LIMIT:
        yield FieldError.too_long(f"{path}.reason", REASON_LIMIT)
    if len(condition.message.encode()) > MESSAGE_LIMIT:
        yield FieldError.too_long(f"{path}.message", MESSAGE_LIMIT)
