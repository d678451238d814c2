"""What extension servers list, as aggregated discovery shows it."""

import json
from typing import Any

import pytest

from kedge.apiserver.aggregation.resource_list import RESOURCES, parse

DEEP = b'{"kind":"APIResourceList","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def listed(*resources: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "APIResourceList", "resources": resources}).encode()


def test_resources_and_subresources() -> None:
    whole = {
        "name": "crates",
        "singularName": "crate",
        "namespaced": True,
        "kind": "Crate",
        "verbs": ["get"],
        "shortNames": ["cr"],
        "categories": ["all"],
    }
    scale = {
        "name": "crates/scale",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["update"],
    }
    assert parse(listed(whole, scale)) == [
        {
            "resource": "crates",
            "responseKind": {"group": "", "version": "", "kind": "Crate"},
            "scope": "Namespaced",
            "singularResource": "crate",
            "verbs": ["get"],
            "shortNames": ["cr"],
            "categories": ["all"],
            "subresources": [
                {
                    "subresource": "scale",
                    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                    "verbs": ["update"],
                }
            ],
        }
    ]


def test_a_subresource_stands_for_a_resource_that_is_not_listed() -> None:
    [found] = parse(listed({"name": "crates/open", "kind": "Crate", "verbs": None}))
    assert (found["resource"], found["verbs"]) == ("crates", [])
    assert found["subresources"][0]["subresource"] == "open"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"kind":"Status"}',
        b'{"kind":3}',
        b"\xff",
        listed({"x": 1}),
        DEEP,
    ],
)
def test_other_answers_are_no_lists(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a list of resources"):
        parse(body)


def test_what_a_hostile_server_lists_is_bounded() -> None:
    many = [{"name": f"r{n}", "verbs": ["get"] * 1000} for n in range(RESOURCES * 3)]
    found = parse(listed({"name": "x" * 10_000}, *many))
    assert len(found) == RESOURCES - 1
    assert len(found[0]["verbs"]) == 50
