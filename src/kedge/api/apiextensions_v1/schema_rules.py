"""Validation of a CRD's schema beyond its structure: keywords, list types, CEL rules, defaults."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.apiextensions_v1.internal_schema import internal_schema
from kedge.api.apiextensions_v1.json_schema import (
    JSONSchemaProps,
    ValidationRule,
    additional,
    document,
    every,
    junctions,
    normal,
)
from kedge.api.apiextensions_v1.rule_paths import field_path
from kedge.api.apiextensions_v1.structural import validate_structural
from kedge.api.apiextensions_v1.values import Checker
from kedge.machinery.errors import FieldError
from kedge.machinery.patterns import compile_pattern

TYPES = ("array", "boolean", "integer", "number", "object", "string")
REASONS = (
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
)
META_FIELDS = frozenset(("metadata", "kind", "apiVersion"))

# With a status subresource the schema of `status` is used alone, so nothing at the root may bear
# on it. Upstream prints these names of Go fields, hence the two spellings.
_AT_ROOT = {
    "description": "Description",
    "type": "Type",
    "format": "Format",
    "title": "Title",
    "maximum": "Maximum",
    "exclusiveMaximum": "ExclusiveMaximum",
    "minimum": "Minimum",
    "exclusiveMinimum": "ExclusiveMinimum",
    "maxLength": "MaxLength",
    "minLength": "MinLength",
    "pattern": "Pattern",
    "maxItems": "MaxItems",
    "minItems": "MinItems",
    "uniqueItems": "UniqueItems",
    "multipleOf": "MultipleOf",
    "required": "Required",
    "items": "Items",
    "properties": "Properties",
    "externalDocs": "ExternalDocs",
    "example": "Example",
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}


class Scope(msgspec.Struct, frozen=True):
    """Where in the tree of schemas we are, as far as it matters."""

    no_defaults: str = ""
    """Why there may be no defaults here."""
    in_metadata: bool = False


def validate_schema(
    schema: JSONSchemaProps, path: str, *, status: bool, known: bool = False
) -> Iterator[FieldError]:
    """Everything wrong with the schema of a version. `status`: whether it has the subresource.

    Rules are compiled only if nothing else is wrong: their types come from the schema. The rules of
    a `known` schema, which the definition had before, are not compiled again.
    """
    found = list(_schema_errors(schema, path, status=status))
    yield from found
    if not found and not known:
        from kedge.api.apiextensions_v1.cel_rules import validate_cel_rules

        yield from validate_cel_rules(schema, path)


def _schema_errors(schema: JSONSchemaProps, path: str, *, status: bool) -> Iterator[FieldError]:
    if status:
        yield from _root_words(schema, path)
    if schema.nullable:
        yield FieldError.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    if _patterns_are_too_large(schema):
        why = f"the patterns of a schema may not have more than {MAX_PROGRAMS} instructions in all"
        yield FieldError.forbidden(path, why)
        return
    # Words that a structural schema has no place for are refused below, in clearer terms.
    if not any(_unsupported_word(each) for each in every(schema)):
        if structure := validate_structural(schema, path):
            yield from structure
        else:
            yield from _defaults(schema, path, root=True)
    yield from _words(schema, path, Scope(), root=True)


MAX_PROGRAMS = 1 << 21
"""Instructions of all patterns of a schema, 16 bytes each."""


def _patterns_are_too_large(schema: JSONSchemaProps) -> bool:
    """Whether the patterns would take much memory and time together, though none of them alone."""
    total = 0
    for pattern in {each.pattern for each in every(schema) if each.pattern}:
        try:
            total += compile_pattern(pattern).cost
        except ValueError:
            # An invalid pattern has its own error, but compiling it may have taken long.
            total += MAX_PROGRAMS // 32
        if total > MAX_PROGRAMS:
            return True
    return False


_MOST_QUOTED: Final = 100
"""Parts of a schema that is quoted with all fields of the internal type, a kilobyte for each."""


def _root_words(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    if schema.type and schema.type != "object":
        why = (
            'only "object" is allowed as the type at the root of the schema '
            "if the status subresource is enabled"
        )
        yield FieldError.invalid(f"{path}.type", schema.type, why)
    elif not (quoted := document(schema)).keys() <= _AT_ROOT.keys():
        why = (
            f"only [{' '.join(_AT_ROOT.values())}] fields are allowed at the root of the schema "
            "if the status subresource is enabled"
        )
        is_long = any(True for _ in islice(every(schema), _MOST_QUOTED, None))
        yield FieldError.invalid(path, schema if is_long else internal_schema(quoted), why)


def _unsupported_word(schema: JSONSchemaProps) -> str:
    for name, value in (
        ("id", schema.id),
        ("schema", schema.schema_),
        ("$ref", schema.ref),
        ("patternProperties", schema.patternProperties),
        ("dependencies", schema.dependencies),
        ("additionalItems", schema.additionalItems is not None),
        ("definitions", schema.definitions),
        ("x-kubernetes-preserve-unknown-fields", schema.preserve_unknown_fields is False),
    ):
        if value:
            return name
    return ""


def _words(
    schema: JSONSchemaProps, path: str, scope: Scope, *, root: bool = False
) -> Iterator[FieldError]:
    yield from _own_words(schema, path, scope)
    if schema.uniqueItems:
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield FieldError.forbidden(f"{path}.uniqueItems", why)
    yield from _additional(schema, path, scope)
    for name, field in schema.properties.items():
        inner = scope
        if (root or schema.embedded_resource) and name in META_FIELDS:
            inner = replace(scope, in_metadata=True)
            if root:
                inner = replace(inner, no_defaults=f"in top-level {name}")
        yield from _words(field, f"{path}.properties[{name}]", inner)
    for each, at in junctions(schema, path):
        yield from _words(each, at, scope)
    if schema.items is not None:
        yield from _words(schema.items, f"{path}.items", scope)
    if schema.preserve_unknown_fields is False:
        at = f"{path}.x-kubernetes-preserve-unknown-fields"
        yield FieldError.invalid(at, False, "must be true or undefined")
    yield from _map_type(schema, path)
    yield from _list_type(schema, path)
    for i, rule in enumerate(schema.validations):
        at = f"{path}.x-kubernetes-validations[{i}]"
        yield from _rule(rule, at)
        if not _is_field_path(rule.fieldPath, schema):
            yield FieldError.invalid(f"{at}.fieldPath", rule.fieldPath, "must be a valid path")


def _own_words(schema: JSONSchemaProps, path: str, scope: Scope) -> Iterator[FieldError]:
    yield from rules.none_or_one_of(f"{path}.type", schema.type, sorted(TYPES))
    if schema.default is not None and scope.no_defaults:
        yield FieldError.forbidden(f"{path}.default", f"must not be set {scope.no_defaults}")
    for word, value in (
        ("id", schema.id),
        ("additionalItems", schema.additionalItems is not None),
        ("patternProperties", schema.patternProperties),
        ("definitions", schema.definitions),
        ("dependencies", schema.dependencies),
        ("$ref", schema.ref is not None),
    ):
        if value:
            yield FieldError.forbidden(f"{path}.{word}", f"{word} is not supported")
    if schema.type == "null":
        why = "type cannot be set to null, use nullable as an alternative"
        yield FieldError.forbidden(f"{path}.type", why)
    if scope.in_metadata and schema.embedded_resource:
        at = f"{path}.x-kubernetes-embedded-resource"
        yield FieldError.forbidden(at, "must not be used inside of resource meta")


def _additional(schema: JSONSchemaProps, path: str, scope: Scope) -> Iterator[FieldError]:
    at = f"{path}.additionalProperties"
    rest = additional(schema)
    if schema.properties and schema.additionalProperties not in (None, True):
        yield FieldError.forbidden(at, "additionalProperties and properties are mutual exclusive")
    if rest is not None:
        if scope.in_metadata:
            why = "inside additionalProperties applying to object metadata"
            scope = replace(scope, no_defaults=why)
        yield from _words(rest, at, scope)


def _map_type(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    if schema.map_type is None:
        return
    yield from _must_be("object", "x-kubernetes-map-type", schema, path)
    if schema.map_type not in ("atomic", "granular"):
        at = f"{path}.x-kubernetes-map-type"
        yield FieldError.not_supported(at, schema.map_type, ("atomic", "granular"))


def _must_be(type_: str, word: str, schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    why = f"must be {type_} if {word} is specified"
    if not schema.type:
        yield FieldError.required(f"{path}.type", why)
    elif schema.type != type_:
        yield FieldError.invalid(f"{path}.type", schema.type, why)


def _list_type(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    at = f"{path}.x-kubernetes-list-type"
    if schema.list_type is not None:
        yield from _must_be("array", "x-kubernetes-list-type", schema, path)
        if schema.type == "array" and schema.list_type == "set":
            yield from _set_items(schema.items, f"{path}.items")
        if schema.list_type not in ("atomic", "set", "map"):
            yield FieldError.not_supported(at, schema.list_type, ("atomic", "set", "map"))
    if schema.list_map_keys and schema.list_type != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        if schema.list_type is None:
            yield FieldError.required(at, why)
        else:
            yield FieldError.invalid(at, schema.list_type, why)
    if schema.list_type == "map":
        yield from _map_items(schema, path)
    yield from _distinct_items(schema, path)


def _set_items(items: JSONSchemaProps | None, path: str) -> Iterator[FieldError]:
    """Elements of a set are compared as wholes, so they must be scalars or atomic."""
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items is None:
        return
    if items.type == "array" and items.list_type not in (None, "atomic"):
        yield FieldError.invalid(f"{path}.x-kubernetes-list-type", items.list_type, why)
    if items.type == "object" and items.map_type != "atomic":
        yield FieldError.invalid(f"{path}.x-kubernetes-map-type", items.list_type, why)


def _map_items(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    keys_at = f"{path}.x-kubernetes-list-map-keys"
    if not schema.list_map_keys:
        yield FieldError.required(keys_at, "must not be empty if x-kubernetes-list-type is map")
    if schema.items is None:
        why = "must have a schema if x-kubernetes-list-type is map"
        yield FieldError.required(f"{path}.items", why)
        return
    if schema.items.type != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield FieldError.invalid(f"{path}.items.type", schema.items.type, why)
        return
    # These two errors show all keys, so each is reported once.
    seen: set[str] = set()
    is_unknown = is_repeated = False
    for key in schema.list_map_keys:
        field = schema.items.properties.get(key)
        if field is None and not is_unknown:
            is_unknown = True
            why = "entries must all be names of item properties"
            yield FieldError.invalid(keys_at, schema.list_map_keys, why)
        elif field is not None and field.type in ("array", "object"):
            at = f"{path}.items.properties[{key}].type"
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield FieldError.invalid(at, schema.items.type, why)
        if key in seen and not is_repeated:
            is_repeated = True
            why = "must not contain duplicate entries"
            yield FieldError.invalid(keys_at, schema.list_map_keys, why)
        seen.add(key)


def _distinct_items(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    """Elements of sets and maps exist, and so do the keys that tell them apart."""
    if schema.items is None or schema.list_type not in ("set", "map"):
        return
    if schema.items.nullable:
        why = f"cannot be nullable when x-kubernetes-list-type is {schema.list_type}"
        yield FieldError.forbidden(f"{path}.items.nullable", why)
    for key in schema.list_map_keys if schema.list_type == "map" else ():
        field = schema.items.properties.get(key)
        if field is None:
            continue
        at = f"{path}.items.properties[{key}]"
        why = "this property is in x-kubernetes-list-map-keys, so it "
        if key not in schema.items.required and field.default is None:
            said = f"{why}must have a default or be a required property"
            yield FieldError.required(f"{at}.default", said)
        if field.nullable:
            yield FieldError.forbidden(f"{at}.nullable", f"{why}cannot be nullable")


def _rule(rule: ValidationRule, path: str) -> Iterator[FieldError]:
    """The form of a CEL rule; `cel_rules` compiles it."""
    expression, message = rule.rule.strip(), rule.message.strip()
    if not expression:
        yield FieldError.required(f"{path}.rule", "rule is not specified")
    elif rule.message and not message:
        why = "must be non-empty if specified"
        yield FieldError.invalid(f"{path}.message", rule.message, why)
    elif _has_line_breaks(message):
        yield FieldError.invalid(f"{path}.message", rule.message, "must not contain line breaks")
    elif _has_line_breaks(expression) and not message:
        why = "message must be specified if rule contains line breaks"
        yield FieldError.required(f"{path}.message", why)
    if rule.messageExpression and not rule.messageExpression.strip():
        why = "messageExpression must be non-empty if specified"
        yield FieldError.required(f"{path}.messageExpression", why)
    if rule.reason is not None and rule.reason not in REASONS:
        yield FieldError.not_supported(f"{path}.reason", rule.reason, REASONS)
    if rule.fieldPath and not rule.fieldPath.strip():
        why = "must be non-empty if specified"
        yield FieldError.invalid(f"{path}.fieldPath", rule.fieldPath, why)
    if _has_line_breaks(rule.fieldPath):
        why = "must not contain line breaks"
        yield FieldError.invalid(f"{path}.fieldPath", rule.fieldPath, why)


def _is_field_path(written: str, schema: JSONSchemaProps) -> bool:
    try:
        return not written or bool(field_path(written, document(schema)))
    except ValueError:
        return False


def _has_line_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def _defaults(schema: JSONSchemaProps, path: str, *, root: bool = False) -> Iterator[FieldError]:
    """Defaults must be values that the schema they stand in would take and would not prune."""
    if schema.default is not None:
        at = f"{path}.default"
        if _pruned(schema, schema.default) != schema.default:
            yield FieldError.invalid(at, schema.default, "must not have unknown fields")
        yield from Checker(document(schema)).errors(schema.default, at)
        yield from _rule_errors_of_default(schema, at)
    if schema.items is not None:
        yield from _defaults(schema.items, f"{path}.items")
    for name, field in schema.properties.items():
        # At the root these are forbidden anyway, and judged as such.
        if not (root and name in META_FIELDS):
            yield from _defaults(field, f"{path}.properties[{name}]")


def _rule_errors_of_default(schema: JSONSchemaProps, at: str) -> Iterator[FieldError]:
    if any(each.validations for each in every(schema)):
        from kedge.api.apiextensions_v1.rule_evaluation import rule_errors
        from kedge.api.apiextensions_v1.rule_tree import rule_tree

        tree = rule_tree(document(schema), is_root=bool(schema.embedded_resource))
        if tree is not None and not tree.is_broken:
            yield from rule_errors(tree, schema.default, schema.default, at)


def _pruned(schema: JSONSchemaProps | None, value: Any) -> Any:
    """Return a default without the fields that the schema does not declare."""
    if isinstance(value, list):
        return [_pruned(schema.items if schema else None, element) for element in value]
    if not isinstance(value, dict):
        return value
    if schema is None:
        return {}
    rest = additional(schema)
    kept = {}
    for name, inner in value.items():
        if name in schema.properties:
            kept[name] = _pruned(schema.properties[name], inner)
        elif schema.additionalProperties is not None:
            kept[name] = _pruned(rest, inner) if rest else inner
        elif schema.preserve_unknown_fields or (schema.embedded_resource and name in META_FIELDS):
            kept[name] = inner
    return kept


def is_readable(schema: JSONSchemaProps) -> bool:
    """Whether everything that should be a schema is one."""
    try:
        normal(schema)
    except msgspec.ValidationError:
        return False
    return True
