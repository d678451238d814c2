"""Validation of custom resources: by their schema, and by rules that a schema cannot express."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kedge.api import metadata
from kedge.api.apiextensions_v1.values import Checker, validate
from kedge.api.model import ObjectMeta
from kedge.api.resource import ScalePaths
from kedge.machinery import names
from kedge.machinery.errors import FieldError
from kedge.machinery.schema import Schema

__all__ = [
    "Checker",
    "validate",
    "validate_embedded",
    "validate_lists",
    "validate_scale",
    "validate_scale_status",
]

_MOST_REPLICAS = 2**31 - 1


def validate_embedded(schema: Schema, value: Any, path: str = "") -> Iterator[FieldError]:
    """Resources within the resource have a kind, an apiVersion and metadata that is in order."""
    if schema.embedded and isinstance(value, dict):
        yield from _embedded(value, path)
    for inner, each, at in _members(schema, value, path):
        yield from validate_embedded(inner, each, at)


def validate_lists(schema: Schema, value: Any, path: str = "") -> Iterator[FieldError]:
    """No element twice in a list of type set, no key twice in one of type map."""
    if schema.type == "list" and isinstance(value, list):
        if schema.list_type == "set":
            for i in _repeated(value):
                yield FieldError.duplicate(f"{path}[{i}]", value[i])
        elif schema.list_type == "map":
            yield from _keyed_list(schema, value, path)
    for inner, each, at in _members(schema, value, path):
        yield from validate_lists(inner, each, at)


def validate_scale(paths: ScalePaths, document: dict[str, Any]) -> Iterator[FieldError]:
    """The wanted replicas are a sensible number."""
    yield from _replicas(paths.replicas, document)
    yield from validate_scale_status(paths, document)


def validate_scale_status(paths: ScalePaths, document: dict[str, Any]) -> Iterator[FieldError]:
    """So are the observed ones, and the selector is a text."""
    yield from _replicas(paths.observed, document)
    if paths.selector:
        selector = _nested(document, paths.selector)
        if selector is not None and not isinstance(selector, str):
            yield FieldError.invalid(
                paths.selector, "", _not_the_type(paths.selector, selector, "string")
            )


def _members(schema: Schema, value: Any, path: str) -> Iterator[tuple[Schema, Any, str]]:
    """(schema, value, path) of everything directly inside a value."""
    if schema.type == "object" and isinstance(value, dict):
        for name, inner in value.items():
            if (field := schema.fields.get(name)) is not None:
                yield field, inner, f"{path}.{name}" if path else name
    elif schema.type == "map" and isinstance(value, dict) and schema.items is not None:
        for name, inner in value.items():
            yield schema.items, inner, f"{path}[{name}]"
    elif schema.type == "list" and isinstance(value, list) and schema.items is not None:
        for i, inner in enumerate(value):
            yield schema.items, inner, f"{path}[{i}]"


def _embedded(value: dict[str, Any], path: str) -> Iterator[FieldError]:
    for field in ("apiVersion", "kind"):
        at = f"{path}.{field}"
        given = value.get(field)
        if field not in value:
            yield FieldError.required(at)
        elif not isinstance(given, str):
            yield FieldError.invalid(at, given, "must be a string")
        elif not given:
            yield FieldError.invalid(at, given, "must not be empty")
        elif field == "kind" and (found := names.dns1035_label(given.lower())):
            why = f"may have mixed case, but should otherwise match: {','.join(found)}"
            yield FieldError.invalid(at, given, why)
        elif field == "apiVersion" and given.count("/") > 1:
            why = f"unexpected GroupVersion string: {given}"
            yield FieldError.invalid(at, given, why)
    if "metadata" in value:
        yield from _embedded_metadata(value["metadata"], path)


def _embedded_metadata(given: object, path: str) -> Iterator[FieldError]:
    try:
        meta = msgspec.convert(given, ObjectMeta)
    except msgspec.ValidationError as error:
        yield FieldError.invalid(f"{path}.metadata", given, str(error))
        return
    # A template for objects may leave the name to its user.
    meta = msgspec.structs.replace(meta, name=meta.name or "fakename")
    for problem in metadata.validate(
        meta,
        namespaced=bool(meta.namespace),
        check_name=names.path_segment,
        check_finalizer=names.finalizer,
    ):
        yield problem.under(path)


def _keyed_list(schema: Schema, value: list[Any], path: str) -> Iterator[FieldError]:
    for i, element in enumerate(value):
        if element is not None and not isinstance(element, dict):
            why = "must be an object for an array of list-type map"
            yield FieldError.invalid(f"{path}[{i}]", element, why)
            return
    keys = [{k: each[k] for k in schema.list_keys if k in (each or {})} for each in value]
    for i in _repeated(keys):
        yield FieldError.duplicate(f"{path}[{i}]", keys[i])


def _repeated(values: Sequence[object]) -> Iterator[int]:
    """Where a value occurs for the second time; further times are not worth another word."""
    times: dict[str, int] = {}
    for i, value in enumerate(values):
        text = json.dumps(value, sort_keys=True)
        times[text] = times.get(text, 0) + 1
        if times[text] == 2:
            yield i


def _replicas(path: str, document: dict[str, Any]) -> Iterator[FieldError]:
    count = _nested(document, path)
    if count is None:
        return
    if not isinstance(count, int) or isinstance(count, bool):
        yield FieldError.invalid(path, 0, _not_the_type(path, count, "int64"))
    elif count < 0:
        yield FieldError.invalid(path, count, "should be a non-negative integer")
    elif count > _MOST_REPLICAS:
        why = f"should be less than or equal to {_MOST_REPLICAS}"
        yield FieldError.invalid(path, count, why)


def _nested(document: object, path: str) -> object:
    for step in path.removeprefix(".").split("."):
        if not isinstance(document, dict):
            return None
        document = document.get(step)
    return document


def _not_the_type(path: str, value: object, wanted: str) -> str:
    given = {str: "string", bool: "bool", float: "float64", int: "int64"}.get(type(value))
    given = given or ("[]interface {}" if isinstance(value, list) else "map[string]interface {}")
    return f"{path} accessor error: {value} is of the type {given}, expected {wanted}"
