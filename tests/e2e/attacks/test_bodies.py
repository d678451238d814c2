"""Bodies that are expensive to parse: accepted or refused without delaying other clients."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BYSTANDER_SECONDS = 1.0
"""Longest wait of another client for a small answer."""
PATIENCE = 50.0
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""A path where every authenticated user may post."""
DEFAULT = "/api/v1/namespaces/default"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
BODY = 3 << 20
"""Bytes that the server takes at most."""


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def message(self) -> str:
        return str(json.loads(self.body).get("message", ""))


class Attacker:
    """An attacker with a token, and other clients at the same time."""

    def __init__(self, target: Any, bystander: Any) -> None:
        self._target = target
        self.bystander = bystander

    def send(
        self, method: str, path: str, body: bytes | Any = b"", kind: str = JSON, accept: str = JSON
    ) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        context = ssl.create_default_context(cadata=self._target.ca_pem)
        connection = http.client.HTTPSConnection(
            self._target.host, self._target.port, context=context, timeout=PATIENCE
        )
        headers = {
            "Content-Type": kind,
            "Accept": accept,
            "Authorization": f"Bearer {self._target.token}",
        }
        try:
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            return Answer(reply.status, reply.read())
        finally:
            connection.close()

    def made(self, path: str, document: Any) -> None:
        answer = self.send("POST", path, document)
        assert answer.status in (201, 409), answer.body[:500]

    def assert_others_are_served(self) -> None:
        """The bystander had an answer every time, and soon; also to its request under way."""
        self.bystander.await_answer()
        assert self.bystander.failures == []
        assert max(self.bystander.kept) < BYSTANDER_SECONDS


@pytest.fixture
def attacker(target: Any, attacks: Any) -> Iterator[Attacker]:
    with attacks.bystander(target, f"{DEFAULT}/serviceaccounts/default") as bystander:
        yield Attacker(target, bystander)


# YAML.


def merges() -> bytes:
    lines = [b"a0: &a0 {a: 1, b: 2}"]
    for i in range(1, 8):
        below = b",".join([b"*a%d" % (i - 1)] * 10)
        lines.append(b"a%d: &a%d {<<: [%b]}" % (i, i, below))
    return b"\n".join(lines)


def aliases() -> bytes:
    lines = [b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    for i in range(1, 8):
        lines.append(b"a%d: &a%d [%b]" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)))
    return b"\n".join(lines)


def directives() -> bytes:
    return b"".join(b"%%TAG !a%d! b\n" % i for i in range(50_000)) + b"--- a"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" * 100_000, "exceeded max depth"),
        (b"- " * 100_000, "exceeded max depth"),
        (b"{a: " * 100_000, "exceeded max depth"),
        (aliases(), "excessive aliasing"),
        (b"[" + b"a," * 1_000_000 + b"]", "more than 262144 values"),
        (directives(), "%TAG"),
        (b"a: " + b"9" * 1_000_000, "out of range"),
    ],
    ids=["brackets", "dashes", "braces", "aliases", "values", "directives", "digits"],
)
def test_yaml_that_is_deep_or_unfolds_is_refused(attacker: Attacker, text: bytes, why: str) -> None:
    for path in (REVIEWS, f"{DEFAULT}/configmaps"):
        if path == REVIEWS and len(text) > 64 << 10:
            continue
        answer = attacker.send("POST", path, text, YAML)
        assert answer.status == 400
        assert answer.message.startswith("the object provided is unrecognized (must be of type ")
        assert why in answer.message
    attacker.assert_others_are_served()


def test_merge_keys_do_not_multiply(attacker: Attacker) -> None:
    assert len(merges()) < 581
    for _ in range(3):
        assert attacker.send("POST", REVIEWS, merges(), YAML).status in (400, 201, 422)
    attacker.assert_others_are_served()


def test_large_objects_and_lists_are_shown_as_yaml(attacker: Attacker) -> None:
    data = {f"k{i}": f"value: {i}" for i in range(40_000)}
    attacker.made(f"{DEFAULT}/configmaps", {"metadata": {"name": "large"}, "data": data})
    for path in (f"{DEFAULT}/configmaps/large", f"{DEFAULT}/configmaps"):
        for _ in range(3):
            answer = attacker.send("GET", path, accept=YAML)
            assert answer.status == 200
            assert b"k39999: 'value: 39999'" in answer.body
    attacker.send("DELETE", f"{DEFAULT}/configmaps/large")
    attacker.assert_others_are_served()


def test_a_list_of_many_large_objects_does_not_delay_others(attacker: Attacker) -> None:
    data = {f"k{i}": f"value: {i}" for i in range(30_000)}
    names = [f"large-{i}" for i in range(40)]
    for name in names:
        attacker.made(f"{DEFAULT}/configmaps", {"metadata": {"name": name}, "data": data})
    for query, accept in (("?pretty=true", JSON), ("", f"{JSON};as=Table;v=v1;g=meta.k8s.io")):
        attacker.bystander.kept.clear()
        answer = attacker.send("GET", f"{DEFAULT}/configmaps{query}", accept=accept)
        assert answer.status == 200
        # Before this process parses the answer: the bystander is a thread of it, and would wait.
        attacker.assert_others_are_served()
        shown = json.loads(answer.body)
        assert len(shown.get("rows") or shown["items"]) >= len(names)
    for name in names:
        attacker.send("DELETE", f"{DEFAULT}/configmaps/{name}")


# JSON and protobuf.


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"a":1e999999}',
        b'{"a":' + b"9" * 1_000_000 + b"}",
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":[' + b",".join([b"9" * 4000] * 700) + b',"\\ud800"]}',
        b'{"' + b"k" * 1_000_000 + b'":[' + b",".join([b'{"a":1,"a":2}'] * 50_000) + b"]}",
    ],
    ids=["brackets", "braces", "power", "digits", "utf-8", "surrogate", "numbers", "long path"],
)
def test_json_that_nobody_can_use_is_a_bad_request(attacker: Attacker, text: bytes) -> None:
    for method, path, kind in (
        ("POST", f"{DEFAULT}/configmaps?dryRun=All", JSON),
        ("PATCH", f"{DEFAULT}/serviceaccounts/default?dryRun=All", MERGE),
        ("PATCH", f"{DEFAULT}/serviceaccounts/default?dryRun=All", JSON_PATCH),
        ("PATCH", f"{DEFAULT}/serviceaccounts/default?dryRun=All", STRATEGIC),
    ):
        assert attacker.send(method, path, text, kind).status == 400
    attacker.assert_others_are_served()


def test_fields_that_stand_twice_or_are_unknown_are_named_up_to_a_hundred(
    attacker: Attacker,
) -> None:
    twice = b'{"metadata":{"name":"x"},' + b",".join(b'"a":1,"a":1' for _ in range(200_000)) + b"}"
    unknown = {"metadata": {"name": "x"}, **{f"a{i}": 1 for i in range(100_000)}}
    for body in (twice, unknown):
        path = f"{DEFAULT}/configmaps?dryRun=All&fieldValidation=Strict"
        answer = attacker.send("POST", path, body)
        assert answer.status == 400
        assert len(answer.body) < 10_000
    attacker.assert_others_are_served()


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def protobuf(kind: bytes, version: bytes, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, version) + field(2, kind)) + field(2, raw)


def test_protobuf_that_is_deep_or_long_is_refused_or_read(attacker: Attacker) -> None:
    deep = b""
    for _ in range(3000):
        # A schema's `not` is a schema.
        deep = field(25, deep)
    version = field(4, field(1, deep))
    definition = field(2, field(7, version))
    bodies = [
        protobuf(b"CustomResourceDefinition", b"apiextensions.k8s.io/v1", definition),
        protobuf(b"CustomResourceDefinition", b"apiextensions.k8s.io/v1", b"\xff" * 100_000),
        b"k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ]
    for body in bodies:
        answer = attacker.send("POST", f"{DEFINITIONS}?dryRun=All", body, PROTOBUF)
        assert answer.status in (400, 422)
    pairs = field(2, field(1, b"a") + field(2, b"b")) * 250_000
    many = protobuf(b"ConfigMap", b"v1", pairs)
    answer = attacker.send("POST", f"{DEFAULT}/configmaps?dryRun=All", many, PROTOBUF)
    assert answer.status == 422  # it has no name
    attacker.assert_others_are_served()


# Patterns.


def definition(pattern: str) -> dict[str, Any]:
    spec = {"type": "object", "properties": {"text": {"type": "string", "pattern": pattern}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "metadata": {"name": "things.patterns.example.com"},
        "spec": {
            "group": "patterns.example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def test_patterns_match_in_time_proportional_to_the_text(attacker: Attacker) -> None:
    attacker.made(DEFINITIONS, definition("^(a+)+$"))
    things = "/apis/patterns.example.com/v1/namespaces/default/things"
    for length in (28, 200_000):
        named = {"apiVersion": "patterns.example.com/v1", "kind": "Thing"}
        body = {**named, "metadata": {"name": "t"}, "spec": {"text": "a" * length + "!"}}
        answer = attacker.send("POST", things, body)
        for _ in range(50):
            if answer.status != 404:
                break
            answer = attacker.send("POST", things, body)
        assert answer.status == 422
        assert "should match '^(a+)+$'" in answer.message
    attacker.send("DELETE", f"{DEFINITIONS}/things.patterns.example.com")
    attacker.assert_others_are_served()


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\pL{1000}", "expression too large"),
        ("((a{100}){100}){100}", "invalid repeat count"),
        ("|".join(f"a{i}" for i in range(100_000)), "expression too large"),
    ],
    ids=["lookahead", "backreference", "classes", "repeats", "long"],
)
def test_a_pattern_that_upstream_refuses_or_that_is_large_is_refused(
    attacker: Attacker, pattern: str, why: str
) -> None:
    answer = attacker.send("POST", DEFINITIONS, definition(pattern))
    assert answer.status == 422
    assert "must be a valid regular expression, but isn't: error parsing regexp: " in answer.message
    assert why in answer.message
    attacker.assert_others_are_served()


def test_many_large_patterns_are_refused_together(attacker: Attacker) -> None:
    document = definition("a")
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = {f"f{i}": {"type": "string", "pattern": rf"\pL{{20}}{i}"} for i in range(20_000)}
    schema["properties"]["spec"]["properties"] = fields
    answer = attacker.send("POST", DEFINITIONS, document)
    assert answer.status == 422
    assert "the patterns of a schema may not have more than" in answer.message
    attacker.assert_others_are_served()


# Work that grew with the square of the body.

POD = {"containers": [{"name": "c", "image": "host"}]}
PODS = f"{DEFAULT}/pods?dryRun=All"


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": POD | spec}


def spread() -> dict[str, Any]:
    constraint = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    return pod(
        topologySpreadConstraints=[constraint | {"topologyKey": f"k{i}"} for i in range(30_000)]
    )


def ports() -> dict[str, Any]:
    port = {"containerPort": 80, "hostIP": "127.0.0.1"}
    return pod(containers=[{"name": "c", "image": "host", "ports": [port] * 50_000}])


def references() -> dict[str, Any]:
    containers = [{"name": f"c{i}", "image": "i"} for i in range(20_000)]
    path = "spec.containers[?(@.name=='c19999')].resources.limits.cpu"
    files = [{"path": f"{i}", "fieldRef": {"fieldPath": path}} for i in range(12_000)]
    return pod(containers=containers, volumes=[{"name": "v", "downwardAPI": {"items": files}}])


def affinities() -> dict[str, Any]:
    keys = [f"k{i}" for i in range(60_000)]
    term = {
        "topologyKey": "k",
        "labelSelector": {"matchLabels": {"a": "b"}},
        "matchLabelKeys": keys,
        "mismatchLabelKeys": [f"m{i}" for i in range(60_000)],
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return pod(affinity={"podAffinity": required})


def managers() -> dict[str, Any]:
    entries = [
        {
            "manager": f"m{i}",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2020-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {f"f:k{i}": {}}},
        }
        for i in range(15_000)
    ]
    return {"metadata": {"name": "m", "managedFields": entries}}


def quota() -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"scopes": [f"s{i}" for i in range(100_000)]}}


CREATED = [
    (PODS, spread),
    (PODS, ports),
    (PODS, references),
    (PODS, affinities),
    (f"{DEFAULT}/configmaps?dryRun=All", managers),
    (f"{DEFAULT}/resourcequotas?dryRun=All", quota),
]


@pytest.mark.parametrize(("path", "make"), CREATED, ids=[make.__name__ for _, make in CREATED])
def test_a_create_does_not_delay_others(attacker: Attacker, path: str, make: Any) -> None:
    body = json.dumps(make()).encode()
    assert len(body) <= BODY
    assert attacker.send("POST", path, body).status in (201, 422)
    attacker.assert_others_are_served()


def test_the_selector_of_a_disruption_budget_may_be_long(attacker: Attacker) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    expressions = [{"key": f"e{i}", "operator": "Exists"} for i in range(20_000)]
    selector = {
        "matchLabels": {f"l{i}": "v" for i in range(20_000)},
        "matchExpressions": expressions,
    }
    document = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}
    attacker.made(path, document)
    attacker.made(f"{DEFAULT}/pods", pod())
    assert attacker.send("GET", f"{path}/b").status == 200
    attacker.send("DELETE", f"{path}/b")
    attacker.send("DELETE", f"{DEFAULT}/pods/p?gracePeriodSeconds=0")
    attacker.assert_others_are_served()


def retain_keys() -> tuple[str, Any]:
    keys = [f"k{i}" for i in range(100_000)]
    return STRATEGIC, {"data": {"$retainKeys": keys, **dict.fromkeys(keys[:60000], "v")}}


def delete_values() -> tuple[str, Any]:
    return STRATEGIC, {
        "metadata": {
            "finalizers": [f"example.com/f{i}" for i in range(40_000)],
            "$deleteFromPrimitiveList/finalizers": [f"example.com/f{i}" for i in range(40_000)],
        }
    }


def moves() -> tuple[str, Any]:
    items = [{"op": "add", "path": "/x", "value": [0] * 800_000}]
    return JSON_PATCH, items + [{"op": "move", "from": "/x/0", "path": "/x/799999"}] * 9_000


def copies() -> tuple[str, Any]:
    items = [{"op": "add", "path": "/x", "value": "v" * 1_000_000}]
    return JSON_PATCH, items + [
        {"op": "copy", "from": "/x", "path": f"/y{i}"} for i in range(9_000)
    ]


PATCHED = [retain_keys, delete_values, moves, copies]


@pytest.mark.parametrize("make", PATCHED, ids=[make.__name__ for make in PATCHED])
def test_a_patch_does_not_delay_others(attacker: Attacker, make: Any) -> None:
    attacker.made(f"{DEFAULT}/configmaps", {"metadata": {"name": "patched"}, "data": {"k0": "v"}})
    kind, patch = make()
    body = json.dumps(patch).encode()
    assert len(body) <= BODY
    path = f"{DEFAULT}/configmaps/patched?dryRun=All"
    assert attacker.send("PATCH", path, body, kind).status in (200, 400, 413, 422)
    attacker.assert_others_are_served()
