"""CEL rules of definitions, evaluated for objects: one case per line of rules.yaml.

published_rules.yaml has the examples of Kubernetes' documentation.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.apiextensions_v1 import custom_resource_definition
from kedge.api.model import Document
from kedge.api.resource import Resource
from kedge.apiserver.crd.resources import resources_of
from kedge.apiserver.crd.rule_cache import RuleCache
from kedge.apiserver.long_work import LongWork
from kedge.machinery import patience
from kedge.machinery.errors import ErrorScope, FieldError
from kedge.testing.clock import FakeClock
from kedge.testing.custom_resources import no_webhook
from kedge.testing.local_server import MERGE, LocalServer

HERE = Path(__file__).parent
CASES = yaml.safe_load((HERE / "rules.yaml").read_text())
PUBLISHED = yaml.safe_load((HERE / "published_rules.yaml").read_text())
EXAMPLES = [
    row | row[outcome] | {"case": f"{row['case']}: {outcome}"}
    for row in PUBLISHED
    for outcome in ("passes", "refused")
]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABS = "/apis/a.example.com/v1/namespaces/default/tabs"
TYPE = {"apiVersion": "a.example.com/v1", "kind": "Tab"}


def definition(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "tabs.a.example.com"},
        "spec": {
            "group": "a.example.com",
            "scope": "Namespaced",
            "names": {"plural": "tabs", "kind": "Tab"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def resource(schema: dict[str, Any], cache: RuleCache | None = None) -> Resource[Document]:
    kind = custom_resource_definition.RESOURCE
    crd = kind.strategy.default(kind.from_document(definition(schema)))
    return resources_of(crd, cache or RuleCache(), no_webhook)[0]


def tab(kind: Resource[Document], spec: Any) -> Document:
    return whole_tab(kind, {"spec": spec})


def whole_tab(kind: Resource[Document], fields: dict[str, Any]) -> Document:
    document = {"metadata": {"name": "t", "namespace": "default"}} | fields
    return kind.strategy.default(kind.from_document(document))


def schema_of(case: dict[str, Any]) -> dict[str, Any]:
    """The schema of a case: that of the whole object, or that of its spec."""
    if "schema" in case:
        return dict(case["schema"])
    return {"type": "object", "properties": {"spec": case["spec"]}}


def errors(case: dict[str, Any]) -> list[FieldError]:
    kind = resource(schema_of(case))
    made = whole_tab if "schema" in case else tab
    new = made(kind, case["new"] if "new" in case else {"l": list(range(case["numbers"]))})
    if "old" in case:
        return list(kind.strategy.validate_update(new, made(kind, case["old"])))
    return list(kind.strategy.validate_new(new))


@pytest.mark.parametrize("case", CASES + EXAMPLES, ids=lambda case: case["case"])
def test_rules_of_objects(case: dict[str, Any]) -> None:
    found = errors(case)
    told = [str(each) for each in found if each.scope is not ErrorScope.RATCHETED]
    warned = [str(each) for each in found if each.scope is ErrorScope.RATCHETED]
    assert told == case.get("errors", [])
    assert warned == case.get("warnings", [])


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case["case"])
def test_published_rules_are_accepted(case: dict[str, Any]) -> None:
    kind = custom_resource_definition.RESOURCE
    crd = kind.strategy.default(kind.from_document(definition(schema_of(case))))
    found = [str(each) for each in kind.strategy.validate_new(crd)]
    if case.get("dear"):
        assert "cost exceeds budget by factor of more than 100x" in found[0]
    else:
        assert found == []


LOOP = "self.l.all(x, self.l.all(y, x + y >= 0))"
LIST = {"type": "array", "items": {"type": "integer"}, "maxItems": 400}
DEAR = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"l": LIST},
            "x-kubernetes-validations": [{"rule": LOOP}],
        }
    },
}


def test_a_long_evaluation_leaves_the_event_loop() -> None:
    kind = resource(DEAR)
    obj = tab(kind, {"l": list(range(300))})

    async def judged() -> list[FieldError]:
        work = LongWork(FakeClock())
        threads: list[bool] = []

        def validate() -> list[FieldError]:
            threads.append(patience.left() is None)
            return list(kind.strategy.validate_new(obj))

        found = await work.run(100, validate)
        assert threads == [False, True]
        return found

    assert asyncio.run(judged()) == []


def test_a_small_cache_compiles_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedge.apiserver.crd.rule_cache.MOST_CHARACTERS", 10)
    cache = RuleCache()
    first, second = resource(DEAR, cache), resource(DEAR, cache)
    for each in (first, second, first):
        assert list(each.strategy.validate_new(tab(each, {"l": [1]}))) == []
    assert len(cache._trees) == 1


SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0"}]},
                "b": {"type": "integer"},
            },
        },
        "status": {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.n > 0", "message": "status n"}],
        },
    },
    "x-kubernetes-validations": [
        {"rule": "self.metadata.name != 'bad'", "message": "name"},
    ],
}


async def test_rules_hold_on_every_endpoint(server: LocalServer) -> None:
    await server.post(CRDS, definition(SCHEMA))
    await server.settle()
    body = TYPE | {"metadata": {"name": "t"}, "spec": {"a": 1}, "status": {"n": -1}}
    await server.post(TABS, body)
    bad = await server.call("POST", TABS, TYPE | {"metadata": {"name": "bad"}, "spec": {"a": -1}})
    assert bad.status == 422
    message = bad.message
    assert message == (
        'Tab.a.example.com "bad" is invalid: [<nil>: Invalid value: name, '
        "spec.a: Invalid value: -1: failed rule: self >= 0]"
    )
    patched = await server.call("PATCH", f"{TABS}/t", {"spec": {"a": -1}}, content_type=MERGE)
    assert patched.status == 422
    status = await server.call(
        "PATCH", f"{TABS}/t/status", {"status": {"n": -1}}, content_type=MERGE
    )
    assert status.status == 422
    assert "status: Invalid value: status n" in status.message
    status = await server.call(
        "PATCH", f"{TABS}/t/status", {"status": {"n": 1}}, content_type=MERGE
    )
    assert status.status == 200


async def test_an_unchanged_invalid_value_draws_a_warning(server: LocalServer) -> None:
    loose = definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    await server.post(CRDS, loose)
    await server.settle()
    await server.post(TABS, TYPE | {"metadata": {"name": "t"}, "spec": {"a": -1}})
    live = await server.get(f"{CRDS}/tabs.a.example.com")
    await server.put(
        f"{CRDS}/tabs.a.example.com",
        live | {"spec": {**live["spec"], "versions": definition(SCHEMA)["spec"]["versions"]}},
    )
    await server.settle()
    patched = await server.call("PATCH", f"{TABS}/t", {"spec": {"b": 1}}, content_type=MERGE)
    assert patched.status == 200
    assert patched.warnings == ['299 - "spec.a: Invalid value: -1: failed rule: self >= 0"']


async def test_a_default_must_keep_its_own_rule(server: LocalServer) -> None:
    rule = [{"rule": "self > 1"}]
    number = {"type": "integer", "default": 0, "x-kubernetes-validations": rule}
    answer = await server.call(
        "POST", CRDS, definition({"type": "object", "properties": {"a": number}})
    )
    assert answer.status == 422
    assert answer.message.endswith("properties[a].default: Invalid value: 0: failed rule: self > 1")
