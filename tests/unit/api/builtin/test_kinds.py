"""Validation, defaults and warnings of the kinds from the table, in upstream's words.

Each file in `kinds/` has a valid object of one kind, and cases that change it by merge patches:
`with` makes the object that is created, `update` the object that replaces it, `status` the object
that is written to its status.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api import catalog
from kedge.api.builtin.resources import RESOURCES as TABLE_KINDS
from kedge.api.builtin.resources import REVIEWS
from kedge.api.resource import Resource
from kedge.api.strategy import no_errors
from kedge.machinery.errors import FieldError
from kedge.machinery.patch import apply_merge
from kedge.machinery.shape import UnknownFields, fit

FILES = sorted((Path(__file__).parent / "kinds").glob("*.yaml"))
TABLES: dict[str, dict[str, Any]] = {file.stem: yaml.safe_load(file.read_text()) for file in FILES}
RESOURCES = {each.plural: each for each in reversed(catalog.BUILT_IN) if each.is_stored}


def cases() -> Iterator[Any]:
    for plural, table in TABLES.items():
        for case in table["cases"]:
            yield pytest.param(plural, case, id=f"{plural}: {case['case']}")


def made(resource: Resource[Any], document: dict[str, Any]) -> Any:
    fitted = fit(resource.schema, document, UnknownFields(10))
    return resource.strategy.default(resource.from_document(fitted))


def found(resource: Resource[Any], case: dict[str, Any], valid: dict[str, Any]) -> list[FieldError]:
    strategy = resource.strategy
    document = apply_merge(valid, case.get("with", {}))
    obj = made(resource, document)
    obj = strategy.prepare_for_create(obj)
    if "update" in case:
        new = made(resource, apply_merge(document, case["update"]))
        new = strategy.prepare_for_update(new, obj)
        return [*strategy.validate(new), *strategy.validate_update(new, obj)]
    if "status" in case:
        new = made(resource, apply_merge(document, {"status": case["status"]}))
        return [*strategy.validate_status(new, obj)]
    return [*strategy.validate(obj), *strategy.validate_new(obj)]


@pytest.mark.parametrize("plural", TABLES)
def test_the_object_of_the_table_is_valid(plural: str) -> None:
    resource, valid = RESOURCES[plural], TABLES[plural]["valid"]
    unknown = UnknownFields(10)
    fit(resource.schema, valid, unknown)
    assert not list(unknown)
    assert [str(error) for error in found(resource, {}, valid)] == []


@pytest.mark.parametrize(("plural", "case"), list(cases()))
def test_errors_and_warnings_are_those_of_kubernetes(plural: str, case: dict[str, Any]) -> None:
    resource, valid = RESOURCES[plural], TABLES[plural]["valid"]
    errors = [str(error) for error in found(resource, case, valid)]
    # Upstream goes through maps in random order, and reports fields in an order of its own.
    assert sorted(set(errors)) == sorted(case.get("errors", []))
    if "warnings" in case:
        obj = made(resource, apply_merge(valid, case.get("with", {})))
        assert list(resource.strategy.warnings(obj)) == case["warnings"]
    if "stored" in case:
        obj = made(resource, apply_merge(valid, case.get("with", {})))
        stored = resource.to_document(obj)
        assert {key: stored.get(key) for key in case["stored"]} == case["stored"]


NO_RULES = {"bindings", "componentstatuses", "serviceaccounts"}
"""Kinds of which upstream validates the metadata only, or which are validated with a pod."""


def test_every_stored_kind_is_validated() -> None:
    unchecked = {
        resource.plural
        for resource in RESOURCES.values()
        if {"update", "create"} & set(resource.verbs)
        and resource.strategy.validate is no_errors
        and resource.strategy.validate_new is no_errors
    }
    assert unchecked - NO_RULES - {review.plural for review in REVIEWS} == set()


def test_every_kind_of_the_table_has_cases() -> None:
    table = {resource.plural for resource in TABLE_KINDS if "update" in resource.verbs}
    assert table - TABLES.keys() == {"apiservices"}, "an APIService has a test of its own"
