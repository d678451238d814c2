"""CEL rules of a CRD's schema: compiled, type checked and priced when the definition is written."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kedge.api.apiextensions_v1.json_schema import (
    JSONSchemaProps,
    ValidationRule,
    additional,
    document,
    every,
)
from kedge.machinery.cel import CelError, CelFoldError, CelProgram, uses
from kedge.machinery.cel.schema_types import DeclaredType, declared_type
from kedge.machinery.errors import FieldError

RULE_LIMIT: Final = 10_000_000
"""The limit of one rule's estimate, multiplied by how often its value may occur."""
SCHEMA_LIMIT: Final = 100_000_000
"""The limit of all rules of a version together."""
_MOST: Final = 2**64 - 1
"""Counts and costs do not grow beyond it."""
_NAMED: Final = 4
_HINT: Final = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)


class RulePlace(NamedTuple):
    """Where in the schema a rule stands."""

    path: str
    most: int | None = 1
    """How many such values an object may have; None if nothing bounds them."""
    uncorrelated: str = ""
    """The list above whose elements have no counterparts in the old object."""
    root: bool = False


def validate_cel_rules(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    """Everything wrong with the rules of a schema that is in order otherwise."""
    if not any(each.validations for each in every(schema)):
        return
    costs: list[tuple[int, str]] = []
    yield from _errors(schema, RulePlace(path, root=True), costs)
    total = sum(cost for cost, _ in costs)
    if total <= SCHEMA_LIMIT:
        return
    dear = sorted((each for each in costs if each[0] >= SCHEMA_LIMIT // 100), reverse=True)
    for _, at in dear[:_NAMED]:
        why = "contributed to estimated rule cost total exceeding cost limit for entire"
        yield FieldError.forbidden(at, f"{why} OpenAPIv3 schema")
    what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
    yield FieldError.forbidden(path, _exceeds(what, total, SCHEMA_LIMIT))


def _errors(
    schema: JSONSchemaProps, place: RulePlace, costs: list[tuple[int, str]]
) -> Iterator[FieldError]:
    count = place.most
    for name, field in schema.properties.items():
        at = f"{place.path}.properties[{name}]"
        yield from _errors(field, RulePlace(at, count, place.uncorrelated), costs)
    values = additional(schema)
    if isinstance(values, JSONSchemaProps):
        at = f"{place.path}.additionalProperties"
        inner = _multiplied(count, schema.maxProperties)
        yield from _errors(values, RulePlace(at, inner, place.uncorrelated), costs)
    if schema.items is not None:
        kept = place.uncorrelated or ("" if schema.list_type == "map" else place.path)
        inner = _multiplied(count, schema.maxItems)
        yield from _errors(schema.items, RulePlace(f"{place.path}.items", inner, kept), costs)
    if schema.validations:
        yield from _own_errors(schema, place, costs)


def _multiplied(count: int | None, most: int | None) -> int | None:
    return None if count is None or most is None else min(count * max(0, most), _MOST)


def _own_errors(
    schema: JSONSchemaProps, place: RulePlace, costs: list[tuple[int, str]]
) -> Iterator[FieldError]:
    at = f"{place.path}.x-kubernetes-validations"
    root = place.root or bool(schema.embedded_resource)
    declared = declared_type(document(schema), root=root)
    if declared is None:
        why = "unable to convert structural schema to CEL declarations"
        said = "internal error: failed to construct type information for"
        body = f"Internal error: {said} x-kubernetes-validations rules: {why}"
        yield FieldError("InternalError", at, body)
        return
    for i, rule in enumerate(schema.validations):
        yield from _rule_errors(rule, declared, place._replace(path=f"{at}[{i}]"), costs)


def _rule_errors(
    rule: ValidationRule, declared: DeclaredType, place: RulePlace, costs: list[tuple[int, str]]
) -> Iterator[FieldError]:
    path, optional = place.path, bool(rule.optionalOldSelf)
    environment = uses.crd_rule(declared.type, optional_old=optional)
    uses_old = False
    try:
        program = _compiled(rule.rule, environment, "bool")
    except CelError as error:
        yield FieldError.invalid(f"{path}.rule", _shown(rule), str(error))
    else:
        uses_old = "oldSelf" in program.uses
        count = declared.cardinality() if place.most is None else place.most
        cost = min(program.estimate(declared.size) * count, _MOST)
        costs.append((cost, f"{path}.rule"))
        if cost > RULE_LIMIT:
            why = _exceeds("estimated rule cost", cost, RULE_LIMIT)
            yield FieldError.forbidden(f"{path}.rule", why)
        yield from _message_errors(rule, declared, place, costs)
    if uses_old and place.uncorrelated:
        why = "oldSelf cannot be used on the uncorrelatable portion of the schema within"
        yield FieldError.invalid(f"{path}.rule", rule.rule, f"{why} {place.uncorrelated}")
    elif not uses_old and rule.optionalOldSelf is not None:
        why = "may not be set if oldSelf is not used in rule"
        yield FieldError.invalid(f"{path}.optionalOldSelf", rule.optionalOldSelf, why)


def _message_errors(
    rule: ValidationRule, declared: DeclaredType, place: RulePlace, costs: list[tuple[int, str]]
) -> Iterator[FieldError]:
    if not rule.messageExpression:
        return
    at, optional = f"{place.path}.messageExpression", bool(rule.optionalOldSelf)
    try:
        environment = uses.crd_rule(declared.type, optional_old=optional)
        program = _compiled(rule.messageExpression, environment, "string")
    except CelError as error:
        yield FieldError.invalid(at, _shown(rule), str(error))
        return
    cost = min(program.estimate(declared.size), _MOST)
    costs.append((cost, at))
    if cost > RULE_LIMIT:
        why = _exceeds("estimated messageExpression cost", cost, RULE_LIMIT)
        yield FieldError.forbidden(at, why)


def _compiled(expression: str, environment: Any, kind: str) -> CelProgram:
    is_message = kind == "string"
    try:
        program = CelProgram(expression, environment)
    except CelFoldError as error:
        what = "messageExpression instantiation failed: "
        raise CelError(
            str(error).replace("program instantiation failed: ", what) if is_message else str(error)
        ) from None
    except CelError as error:
        what = "messageExpression compilation failed" if is_message else "compilation failed"
        raise CelError(f"{what}: {error}") from None
    if program.type.kind != kind:
        if is_message:
            raise CelError("messageExpression must evaluate to a string")
        raise CelError("cel expression must evaluate to a bool")
    return program


def _shown(rule: ValidationRule) -> dict[str, Any]:
    """Return the rule as upstream prints it, with the names of Go fields."""
    return {
        "Rule": rule.rule,
        "Message": rule.message,
        "MessageExpression": rule.messageExpression,
        "Reason": rule.reason,
        "FieldPath": rule.fieldPath,
        "OptionalOldSelf": rule.optionalOldSelf,
    }


def _exceeds(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        times = "more than 100x"
    elif factor < 1.5:
        times = f"{factor:f}x"
    else:
        times = f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {times} {_HINT}"
