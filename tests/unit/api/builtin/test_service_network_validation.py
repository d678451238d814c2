"""ServiceCIDRs and IPAddresses that are refused, in upstream's words."""

from collections.abc import Iterable
from typing import Any

import pytest

from kedge.api.builtin import service_network_validation as validation
from kedge.api.model import Document, ObjectMeta
from kedge.machinery.errors import FieldError

PARENT = {"resource": "services", "namespace": "default", "name": "web"}


def of(content: dict[str, Any]) -> Document:
    return Document(metadata=ObjectMeta(name="x"), content=content)


def cidrs(*networks: str) -> Document:
    return of({"spec": {"cidrs": list(networks)}})


def said(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def test_service_cidr_has_at_most_one_of_each_family() -> None:
    assert said(validation.service_cidr(cidrs("10.0.0.0/16", "fd00::/112"))) == []
    (found,) = said(validation.service_cidr(cidrs("10.0.0.0/16", "10.1.0.0/16")))
    assert "may specify no more than one IP for each IP family" in found


@pytest.mark.parametrize(
    ("new", "old", "field"),
    [
        (["10.0.0.0/16"], ["10.0.0.0/16"], ""),
        (["10.0.0.0/16", "fd00::/112"], ["10.0.0.0/16"], ""),
        (["10.1.0.0/16"], ["10.0.0.0/16"], "spec.cidrs[0]"),
        (["10.1.0.0/16", "fd00::/112"], ["10.0.0.0/16"], "spec.cidrs[0]"),
        (["10.0.0.0/16"], ["10.0.0.0/16", "fd00::/112"], "spec.cidrs"),
    ],
)
def test_a_service_cidr_can_only_gain_a_family(new: list[str], old: list[str], field: str) -> None:
    found = list(validation.service_cidr_update(cidrs(*new), cidrs(*old)))
    assert [error.field for error in found] == ([field] if field else [])
    assert all("field is immutable" in str(error) for error in found)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"parentRef": PARENT}, []),
        ({}, ["spec.parentRef: Required value"]),
        ({"parentRef": PARENT | {"name": ""}}, ["spec.parentRef.name: Required value"]),
        ({"parentRef": PARENT | {"resource": ""}}, ["spec.parentRef.resource: Required value"]),
    ],
)
def test_an_ip_address_needs_a_parent(spec: dict[str, Any], expected: list[str]) -> None:
    assert said(validation.ip_address(of({"spec": spec}))) == expected


def test_the_parent_of_an_ip_address_is_immutable() -> None:
    old, new = of({"spec": {"parentRef": PARENT}}), of({"spec": {"parentRef": {"name": "other"}}})
    assert said(validation.ip_address_update(old, old)) == []
    assert "field is immutable" in said(validation.ip_address_update(new, old))[0]
