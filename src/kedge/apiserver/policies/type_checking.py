"""Type checks of ValidatingAdmissionPolicies against the schemas of the kinds that they match."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kedge.api.builtin.policy_programs import PolicyCompiler
from kedge.api.catalog import Catalog
from kedge.api.resource import Resource
from kedge.machinery.cel import CelError
from kedge.machinery.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
    list_of,
    map_of,
    object_of,
)
from kedge.machinery.schema import Schema

MOST_KINDS: Final = 10
"""Kinds that a policy is checked against; upstream checks no more."""
_SCALARS: Final[dict[str, CelType]] = {
    "string": STRING,
    "quantity": STRING,
    "integer": INT,
    "number": DOUBLE,
    "boolean": BOOL,
    "time": TIMESTAMP,
    "micro-time": TIMESTAMP,
    "bytes": BYTES,
}
_FORMATS: Final = {"date-time": TIMESTAMP, "date": TIMESTAMP, "byte": BYTES, "duration": DURATION}


class CheckedKinds(NamedTuple):
    """The kinds that a policy is checked against."""

    matched: tuple[Resource[Any], ...]
    params: Resource[Any] | None


def checked_kinds(spec: Mapping[str, Any], catalog: Catalog) -> CheckedKinds:
    """Return the kinds that a policy matches and refers to."""
    kind = spec.get("paramKind") or {}
    params = catalog.of_kind(kind.get("apiVersion") or "", kind.get("kind") or "")
    return CheckedKinds(tuple(_kinds(spec, catalog)), params if kind else None)


def expression_warnings(spec: Mapping[str, Any], kinds: CheckedKinds) -> list[dict[str, str]]:
    """Return what `status.typeChecking.expressionWarnings` says about a policy."""
    types = {} if kinds.params is None else {"params": _type(kinds.params)}
    matched = [(each, _type(each)) for each in kinds.matched]
    found: list[dict[str, str]] = []
    for i, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            expression = validation.get(field) or ""
            if not expression:
                continue
            told = [
                f"{_named(kind)}: {error}\n"
                for kind, type_ in matched
                if (error := _error(spec, types, expression, type_))
            ]
            if told:
                place = f"spec.validations[{i}].{field}"
                found.append({"fieldRef": place, "warning": "\n".join(told)})
    return found


def _error(
    spec: Mapping[str, Any], params: Mapping[str, CelType], expression: str, type_: CelType
) -> str:
    types = {"object": type_, "oldObject": type_, **params}
    compiler = PolicyCompiler(spec, types=types)
    for variable in spec.get("variables") or ():
        compiler.checked_variable(variable["name"], variable["expression"])
    try:
        compiler.expression(expression)
    except CelError as error:
        return str(error).removeprefix("compilation failed: ")
    return ""


def _kinds(spec: Mapping[str, Any], catalog: Catalog) -> list[Resource[Any]]:
    """Return the kinds of rules without wildcards, in order, at most ten."""
    found: dict[tuple[str, str, str], Resource[Any]] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        for resource in _matched(rule, catalog):
            found[resource.group, resource.version, resource.kind] = resource
    return [found[key] for key in sorted(found)][:MOST_KINDS]


def _matched(rule: Mapping[str, Any], catalog: Catalog) -> Iterator[Resource[Any]]:
    groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
    if "*" in groups or "*" in versions:
        return
    for group in groups:
        for version in versions:
            for plural in rule.get("resources") or ():
                resource = catalog.find(group, version, plural)
                if resource is not None:
                    yield resource


def _named(resource: Resource[Any]) -> str:
    # As Go prints it: the core group has an empty name.
    return f"{resource.group}/{resource.version}, Kind={resource.kind}"


def _type(resource: Resource[Any]) -> CelType:
    return schema_type(resource.schema, resource.kind)


def schema_type(schema: Schema, name: str, above: tuple[Schema, ...] = ()) -> CelType:
    """Return the type that a schema stands for; `dyn` for values of several types.

    Schemas may be cyclic: a schema within itself is `dyn` too.
    """
    if any(each is schema for each in above):
        return DYN
    below = (*above, schema)
    if schema.type in ("map", "list"):
        inner = DYN if schema.items is None else schema_type(schema.items, f"{name}.@", below)
        return list_of(inner) if schema.type == "list" else map_of(STRING, inner)
    if schema.type == "object":
        return _object_type(schema, name, below)
    if schema.type == "string":
        return _FORMATS.get(schema.format, STRING)
    return _SCALARS.get(schema.type, DYN)


def _object_type(schema: Schema, name: str, below: tuple[Schema, ...]) -> CelType:
    if schema.open or not schema.fields:
        return DYN
    fields = {
        key: schema_type(inner, f"{name}.{key}", below) for key, inner in schema.fields.items()
    }
    return object_of(name, fields)
