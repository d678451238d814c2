"""A CustomResourceDefinition -> the Resources that the server then serves."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeGuard

import msgspec

from kedge.api.apiextensions_v1.correlation import Correlation
from kedge.api.apiextensions_v1.definition import (
    CustomResourceColumnDefinition,
    CustomResourceDefinition,
    CustomResourceDefinitionVersion,
    schema_of_version,
    storage_version,
)
from kedge.api.apiextensions_v1.json_schema import document as schema_document
from kedge.api.apiextensions_v1.json_schema import every
from kedge.api.apiextensions_v1.values import Checker
from kedge.api.model import Document
from kedge.api.presentation import Age, Column, Presentation, name_column
from kedge.api.resource import SCALE, STATUS, Resource, ScalePaths, StoredAs, Subresource
from kedge.api.strategy import Strategy, keep_metadata
from kedge.apiserver.crd.defaulting import apply_defaults, without_nulls
from kedge.apiserver.crd.pruning import prune
from kedge.apiserver.crd.rule_cache import RuleCache
from kedge.apiserver.crd.schema import from_openapi
from kedge.apiserver.crd.validation import (
    validate_embedded,
    validate_lists,
    validate_scale,
    validate_scale_status,
)
from kedge.apiserver.crd.webhook_converter import VersionForm, WebhookConverter
from kedge.machinery import durations, names
from kedge.machinery.errors import FieldError
from kedge.machinery.jsonpath import JSONPath, parse_path
from kedge.machinery.schema import Schema

Converters = Callable[[CustomResourceDefinition, Mapping[str, VersionForm]], WebhookConverter]
"""Makes the converter of a definition that has a conversion webhook."""


def resources_of(
    crd: CustomResourceDefinition, rules: RuleCache, converters: Converters
) -> list[Resource[Document]]:
    """One Resource per served version, the one that is stored first if it is served."""
    contents = {version.name: _Contents(crd, version, rules) for version in crd.spec.versions}
    converter = None
    if crd.spec.conversion is not None and crd.spec.conversion.strategy == "Webhook":
        forms = {name: VersionForm(each.read, each.prune) for name, each in contents.items()}
        converter = converters(crd, forms)
    stored_name = storage_version(crd)
    stored = next(
        (
            _resource(crd, v, contents, converter)
            for v in crd.spec.versions
            if v.name == stored_name
        ),
        None,
    )
    served: list[Resource[Document]] = []
    for version in crd.spec.versions:
        if version.name == stored_name:
            if version.served and stored is not None:
                served.insert(0, stored)
        elif version.served:
            served.append(_resource(crd, version, contents, converter, stored))
    return served


def _resource(
    crd: CustomResourceDefinition,
    version: CustomResourceDefinitionVersion,
    by_version: Mapping[str, "_Contents"],
    converter: WebhookConverter | None,
    stored: Resource[Document] | None = None,
) -> Resource[Document]:
    """Return the resource of a version; `stored` is that of the storage version, if another."""
    group, contents = crd.spec.group, by_version[version.name]
    view = None
    if stored is not None:
        own = f"{group}/{version.name}"
        view = _view_of(stored, own, contents, by_version[stored.version])
    words = crd.status.acceptedNames if crd.status.acceptedNames.plural else crd.spec.names
    read = contents.read if converter is None else converter.read
    # Nothing here may hold the definition: it takes twenty times the memory of its JSON.
    deprecation = _deprecation(crd, version) if version.deprecated else ""
    return Resource(
        type=Document,
        group=crd.spec.group,
        version=version.name,
        plural=words.plural,
        kind=words.kind,
        singular=words.singular,
        list_kind=words.listKind,
        namespaced=crd.spec.scope == "Namespaced",
        subresources=_subresources(version),
        scale=contents.scale,
        store_as=view,
        schema_source=contents.made_schema,
        version_schemas={f"{group}/{v}": each.made_schema for v, each in by_version.items()},
        custom=True,
        # Objects stored under the first definition are as it wants them.
        read=read if crd.metadata.generation > 1 else None,
        conversion=converter,
        registry=f"{crd.spec.group}/{words.plural}",
        strategy=Strategy(
            default=contents.default,
            validate_new=contents.validate_new,
            validate_update=contents.validate_update,
            validation_cost=contents.effort,
            validate_status=contents.validate_status,
            prepare_for_status_update=keep_metadata,
            warnings=lambda obj: _warnings(deprecation, obj),
            allows_unconditional_update=False,
        ),
        presentation=Presentation(
            short_names=tuple(words.shortNames),
            categories=tuple(words.categories),
            columns=tuple(_columns(version.additionalPrinterColumns)),
            fields=dict(_selectable(version)),
        ),
    )


UNKNOWN_EFFORT = 1 << 20


class _Contents:
    """The schema of one version and all that follows from it, each made when first needed."""

    def __init__(
        self,
        crd: CustomResourceDefinition,
        version: CustomResourceDefinitionVersion,
        rules: RuleCache,
    ) -> None:
        written = schema_of_version(version)
        self._rules = rules
        self._has_rules = written is not None and any(each.validations for each in every(written))
        self._props: dict[str, Any] = {"type": "object"}
        if written is not None:
            self._props = schema_document(written)
        self._name = _component(crd.spec.group, version.name, crd.spec.names.kind)
        self.scale = _scale_paths(version)

    @cached_property
    def schema(self) -> Schema:
        return msgspec.structs.replace(from_openapi(self._props), name=self._name)

    def has_fields_of(self, other: "_Contents") -> bool:
        """Whether another version has the same schema."""
        return self._props == other._props

    def made_schema(self) -> Schema:
        """Return the schema; the first call makes it."""
        return self.schema

    @cached_property
    def checker(self) -> Checker:
        return Checker(self._props)

    def effort(self) -> int:
        """How many times longer than usual a byte takes; very large until the checkers are
        built."""
        if self._has_rules and not self._rules.has(self._props):
            return UNKNOWN_EFFORT
        made = [self.__dict__.get(name) for name in ("checker", "status_checker")]
        return max(each.effort for each in made if each) if any(made) else UNKNOWN_EFFORT

    @cached_property
    def status_checker(self) -> Checker:
        return Checker((self._props.get("properties") or {}).get("status") or {})

    def default(self, obj: Document) -> Document:
        content = apply_defaults(self.schema, obj.content)
        return msgspec.structs.replace(obj, content=content)

    def read(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document that was stored under an earlier definition, as this one sees it."""
        return apply_defaults(self.schema, self.prune(document))

    def prune(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the declared fields of a document."""
        return without_nulls(self.schema, prune(self.schema, document, []))

    def validate_new(self, obj: Document) -> Iterator[FieldError]:
        whole = _whole(obj)
        errors = [*self._schema_errors(whole), *validate_lists(self.schema, whole)]
        yield from errors
        yield from self._rule_errors(whole, None, errors, nameless=not obj.metadata.name)

    def validate_update(self, obj: Document, old: Document) -> Iterator[FieldError]:
        new, before = _whole(obj), _whole(old)
        node = Correlation(self._props, new, before)
        errors = [*self._schema_errors(new, node), *self._new_list_errors(new, before)]
        yield from errors
        yield from self._rule_errors(new, before, errors, node)

    def validate_status(self, obj: Document, old: Document) -> Iterator[FieldError]:
        new, before = _whole(obj), _whole(old)
        node = Correlation(self._props, new, before)
        errors: list[FieldError] = []
        if "status" in new:
            errors += self.status_checker.errors(new["status"], "status", node.key("status"))
        if self.scale is not None:
            errors += validate_scale_status(self.scale, new)
        errors += self._new_list_errors(new, before)
        yield from errors
        yield from self._rule_errors(new, before, errors, node)

    def _schema_errors(
        self, whole: dict[str, Any], node: Correlation | None = None
    ) -> Iterator[FieldError]:
        yield from self.checker.errors(whole, node=node)
        if self.scale is not None:
            yield from validate_scale(self.scale, whole)
        yield from validate_embedded(self.schema, whole)

    def _new_list_errors(self, new: dict[str, Any], old: dict[str, Any]) -> Iterator[FieldError]:
        """Lists of types set and map may stay as wrong as they were."""
        errors = list(validate_lists(self.schema, new))
        if errors and not any(True for _ in validate_lists(self.schema, old)):
            yield from errors

    def _rule_errors(
        self,
        new: dict[str, Any],
        old: dict[str, Any] | None,
        errors: list[FieldError],
        node: Correlation | None = None,
        *,
        nameless: bool = False,
    ) -> Iterator[FieldError]:
        """The errors of CEL rules, which expect values of the right type and size."""
        if not self._has_rules:
            return
        if nameless or any(error.reason in _BLOCKING for error in errors):
            yield FieldError("FieldValueInvalid", "<nil>", f"Invalid value: null: {_UNCHECKED}")
        elif (tree := self._rules.rules(self._props)) is not None:
            from kedge.api.apiextensions_v1.rule_evaluation import Ratchet, rule_errors

            yield from rule_errors(tree, new, old, ratchet=Ratchet(node))


_BLOCKING = frozenset(
    (
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    )
)
"""Errors that keep CEL rules from being evaluated."""
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def _component(group: str, version: str, kind: str) -> str:
    """`com.example.stable.v1.CronTab`: the domain turned round, as OpenAPI lists it."""
    return ".".join((*reversed(group.split(".")), version, kind))


def _whole(obj: Document) -> dict[str, Any]:
    head = {"apiVersion": obj.apiVersion, "kind": obj.kind}
    return head | {"metadata": msgspec.to_builtins(obj.metadata)} | obj.content


def _subresources(version: CustomResourceDefinitionVersion) -> tuple[Subresource, ...]:
    parts = version.subresources
    if parts is None:
        return ()
    status = (STATUS,) if parts.status is not None else ()
    return (*status, SCALE) if parts.scale is not None else status


def _scale_paths(version: CustomResourceDefinitionVersion) -> ScalePaths | None:
    if version.subresources is None or version.subresources.scale is None:
        return None
    scale = version.subresources.scale
    return ScalePaths(
        replicas=scale.specReplicasPath,
        observed=scale.statusReplicasPath,
        selector=scale.labelSelectorPath or "",
    )


def _view_of(
    stored: Resource[Document], api_version: str, own: _Contents, home: _Contents
) -> StoredAs:
    """Strategy None: objects of all versions are the same but for their apiVersion, and for fields
    that the schema of one version lacks."""

    def relabelled(document: dict[str, Any], version: str, contents: _Contents) -> dict[str, Any]:
        document = document | {"apiVersion": version}
        return document if is_same else contents.prune(document)

    is_same = own.has_fields_of(home)
    return StoredAs(
        resource=stored,
        to_stored=lambda document: relabelled(document, stored.api_version, home),
        from_stored=lambda document: relabelled(document, api_version, own),
    )


def _columns(columns: Iterable[CustomResourceColumnDefinition]) -> Iterator[Column]:
    yield name_column()
    declared = [each for each in map(_column, columns) if each is not None]
    yield from declared or (
        Column(name="Age", type="date", cell=lambda obj: Age(obj.metadata.creationTimestamp)),
    )


def _column(column: CustomResourceColumnDefinition) -> Column | None:
    try:
        path = parse_path(column.jsonPath)
    except ValueError:
        return None  # upstream too serves such a kind, only without the column
    show = _CELLS.get(column.type, _text_cell)
    about = f"Custom resource definition column (in JSONPath format): {column.jsonPath}"
    return Column(
        name=column.name,
        type=column.type,
        format=column.format,
        priority=column.priority,
        description=column.description or about,
        cell=lambda obj: show(_found(path, obj)),
    )


def _found(path: JSONPath, obj: Document) -> object:
    """Return the first value at the path; None if there is none."""
    content: Mapping[str, Any] = obj.content
    if path.text.lstrip("{").startswith((".metadata", ".apiVersion", ".kind", "[")):
        content = _whole(obj)
    results = path.find(content)
    return results[0] if results else None


def _text_cell(value: object) -> object:
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case _:
            return str(value)


def _integer_cell(value: object) -> object:
    return int(value) if _is_number(value) else None


def _number_cell(value: object) -> object:
    return float(value) if _is_number(value) else None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _boolean_cell(value: object) -> object:
    return value if isinstance(value, bool) else None


def _date_cell(value: object) -> object:
    if not isinstance(value, str):
        return None
    try:
        durations.parse_time(value)
    except ValueError:
        return "<invalid>"
    return Age(value)


_CELLS: Mapping[str, Callable[[object], object]] = {
    "string": _text_cell,
    "integer": _integer_cell,
    "number": _number_cell,
    "boolean": _boolean_cell,
    "date": _date_cell,
}


def _selectable(
    version: CustomResourceDefinitionVersion,
) -> Iterator[tuple[str, Callable[[Document], str]]]:
    for field in version.selectableFields:
        yield field.jsonPath.removeprefix("."), _selected(parse_path(field.jsonPath))


def _selected(path: JSONPath) -> Callable[[Document], str]:
    def text(obj: Document) -> str:
        value = _found(path, obj)
        return "" if value is None else str(_text_cell(value))

    return text


def _warnings(deprecation: str, obj: Document) -> Iterator[str]:
    if deprecation:
        yield deprecation
    for name in obj.metadata.finalizers:
        at = f'metadata.finalizers: "{name}":'
        for problem in names.qualified_name(name):
            yield f"{at} {problem}"
        if names.core_finalizer(name):
            path = " including a path (/)" if "." in name else ""
            yield (
                f"{at} prefer a domain-qualified finalizer name{path} "
                "to avoid accidental conflicts with other finalizer writers"
            )


def _deprecation(crd: CustomResourceDefinition, version: CustomResourceDefinitionVersion) -> str:
    if version.deprecationWarning:
        return version.deprecationWarning
    kind, group = crd.spec.names.kind, crd.spec.group
    newer = [
        each.name
        for each in crd.spec.versions
        if each.served and not each.deprecated and _rank(each.name) > _rank(version.name)
    ]
    instead = f"; use {group}/{max(newer, key=_rank)} {kind}" if newer else ""
    return f"{group}/{version.name} {kind} is deprecated{instead}"


_VERSION = re.compile("v([0-9]+)(?:(alpha|beta)([0-9]+))?")


def _rank(version: str) -> tuple[int, int, int]:
    """Stable before beta before alpha, later before earlier."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return (0, 0, 0)
    maturity = {"alpha": 1, "beta": 2, None: 3}[parsed[2]]
    return maturity, int(parsed[1]), int(parsed[3] or 0)
