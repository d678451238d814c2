"""The changes that a MutatingAdmissionPolicy makes to one object."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kedge.api.builtin.policy_programs import PATCH_FIELDS, PATCH_TYPES, PolicyCompiler
from kedge.api.resource import Resource
from kedge.apiserver.policies.validation import POLICY_LIMIT, Budget
from kedge.machinery.cel import CelError, CelProgram
from kedge.machinery.cel.compiler import ObjectValue
from kedge.machinery.cel.values import (
    CelDuration,
    Timestamp,
    check_extent,
)
from kedge.machinery.durations import format_duration
from kedge.machinery.errors import internal
from kedge.machinery.merge import faults, merge
from kedge.machinery.patch import PatchError, PatchTestFailed, apply_json
from kedge.machinery.schema import Schema

_TYPE_AND_VERSION: Final = ("apiVersion", "kind")


class MutationError(Exception):
    """A mutation that cannot be made."""


@dataclass(frozen=True, slots=True)
class PolicyMutation:
    """One of the mutations of a policy."""

    patch_type: str
    expression: str
    program: CelProgram | CelError


MutatingParts = tuple[PolicyMutation, ...]


def mutating_parts(spec: Mapping[str, Any], compiler: PolicyCompiler) -> MutatingParts:
    """Compile the mutations of a policy."""
    return tuple(_mutation(each, compiler) for each in spec.get("mutations") or ())


def _mutation(written: Mapping[str, Any], compiler: PolicyCompiler) -> PolicyMutation:
    kind = written.get("patchType") or ""
    expression = (written.get(PATCH_FIELDS[kind]) or {}).get("expression") or ""
    program: CelProgram | CelError
    try:
        program = compiler.mutation(expression, PATCH_TYPES[kind])
    except CelError as error:
        program = error
    return PolicyMutation(kind, expression, program)


def patched(
    mutation: PolicyMutation, values: Mapping[str, Any], resource: Resource[Any]
) -> dict[str, Any]:
    """Return the object of `values` with the mutation; MutationError if it cannot be made."""
    try:
        result = Budget(values, POLICY_LIMIT).evaluate(mutation.program, mutation.expression)
        check_extent(result)
    except CelError as error:
        raise MutationError(str(error)) from None
    document: dict[str, Any] = values["object"]
    if mutation.patch_type == "ApplyConfiguration":
        return _applied(resource, document, result)
    return _json_patched(document, result)


# ApplyConfiguration.


def _applied(resource: Resource[Any], document: dict[str, Any], result: Any) -> dict[str, Any]:
    schema = resource.schema
    if not isinstance(result, ObjectValue):
        raise MutationError("unsupported return type from ApplyConfiguration expression")
    _check_type_names(result)
    head = {name: document[name] for name in _TYPE_AND_VERSION if name in document}
    config = _plain(result) | head
    _check_fit("patch", [*_times(result, ""), *faults(schema, config)])
    if atomics := ", ".join(_atomics(schema, config, "")):
        why = "may not mutate atomic arrays, maps or structs"
        raise MutationError(f"error applying patch: invalid ApplyConfiguration: {why}: {atomics}")
    if resource.custom:  # objects of other kinds have the types of their fields
        _check_fit("original", faults(schema, document, allow_duplicates=True))
    return merge(schema, document, config)


def _check_fit(which: str, wrong: list[str]) -> None:
    """MutationError if an object does not have the types of its schema."""
    if wrong:
        told = wrong[0] if len(wrong) == 1 else "errors:\n" + "\n".join(f"  {x}" for x in wrong)
        why = f"failed to convert {which} object to typed object"
        raise MutationError(f"error applying patch: {why}: {told}")


def _times(value: Any, path: str) -> Iterator[str]:
    """Yield the faults of timestamps and durations, which upstream does not turn into texts."""
    if isinstance(value, Timestamp):
        told = str(value).replace("T", " ").replace("Z", " +0000 UTC")
        yield f"{path}: expected any scalar, got &{{{told}}}"
    elif isinstance(value, CelDuration):
        yield f"{path}: expected any scalar, got &{{{format_duration(value.nanos)}}}"
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _times(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _times(inner, f"{path}[{i}]")


def _atomics(schema: Schema, value: Any, path: str) -> Iterator[str]:
    """Yield the paths of atomic values: a change of a part would drop the rest."""
    if isinstance(value, dict):
        if schema.atomic and schema.type in ("object", "map"):
            yield path
        for name, inner in value.items():
            if schema.type != "map" and (field := schema.fields.get(name)) is not None:
                yield from _atomics(field, inner, f"{path}.{name}")
    elif isinstance(value, list) and schema.type == "list":
        if schema.list_type == "atomic":
            yield path
        for i, inner in enumerate(value):
            if schema.items is not None:
                yield from _atomics(schema.items, inner, f"{path}[{i}]")


# JSONPatch.


def _json_patched(document: dict[str, Any], result: Any) -> dict[str, Any]:
    operations = [_operation(each) for each in result] if isinstance(result, list) else []
    try:
        changed = apply_json(document, operations)
    except PatchTestFailed:
        return document
    except PatchError as error:
        raise MutationError(f"JSON Patch: {error.message}") from None
    if not isinstance(changed, dict):
        raise internal("the patched object is not an object")
    return changed


def _operation(written: Mapping[str, Any]) -> dict[str, Any]:
    operation = {"op": written.get("op", ""), "path": written.get("path", "")}
    if written.get("from"):
        operation["from"] = written["from"]
    if "value" in written:
        value = written["value"]
        if isinstance(value, ObjectValue):
            _check_type_names(value)
        operation["value"] = _plain(value)
    return operation


# Values.


def _check_type_names(value: ObjectValue) -> None:
    wrong = list(_wrong_type_names(value, value.cel_type))
    if wrong:
        raise MutationError("type mismatch: " + "\n".join(wrong))


def _wrong_type_names(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, ObjectValue):
        if value.cel_type != path:
            yield (
                f'unexpected type name "{value.cel_type}", expected "{path}", '
                "which matches field name path from root Object type"
            )
        for name, inner in value.items():
            yield from _wrong_type_names(inner, f"{path}.{name}")
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _wrong_type_names(inner, path)


def _plain(value: Any) -> Any:
    """Return a value of an expression as JSON has it."""
    if isinstance(value, dict):
        return {_key(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp | CelDuration):
        return str(value)
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return int(value)
    raise MutationError("expression evaluated to a type that could not marshal to JSON")


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise MutationError("expression evaluated to a map whose keys are not strings")
    return name
