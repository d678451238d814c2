"""Cases that take random steps with one object, each followed by a look at it."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import yaml
from tests.differential import fields, samples
from tests.differential.cases import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    NAMESPACE,
    STRATEGIC,
    Case,
    Kind,
    Request,
    folded,
)

STEPS: Final = 8
YAML: Final = "application/yaml"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_OWNER: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "o",
    "uid": "11111111-2222-3333-4444-555555555555",
}
_LABELS: Final = (
    {"a": "b"},
    {"a": None},
    {"a": ""},
    {"bad key": "x"},
    {"a": "ü"},
    {"a": "x" * 64},
    {"example.com/a": "b"},
    {"of": None},
    None,
    {},
    "x",
)
_FINALIZERS: Final = (
    ["example.com/f"],
    [],
    None,
    ["f"],
    ["example.com/f", "example.com/f"],
    ["foregroundDeletion"],
    ["orphan"],
    ["example.com/ü"],
)
_OWNERS: Final = (
    [_OWNER],
    [],
    None,
    [_OWNER | {"controller": True}, _OWNER | {"controller": True, "uid": "v"}],
    [{"name": "o"}],
    [_OWNER | {"blockOwnerDeletion": True}],
)
_QUERIES: Final = (
    "",
    "",
    "",
    "dryRun=All",
    "dryRun=all",
    "fieldManager=me",
    "fieldManager=" + "x" * 129,
    "fieldManager=%C3%BC",
    "fieldManager=%07",
    "fieldValidation=Strict",
    "fieldValidation=Ignore",
    "fieldValidation=nonsense",
    "pretty=true",
    "timeout=5s",
    "timeout=x",
    "dryRun=All&fieldManager=me&fieldValidation=Strict",
    "unknown=1",
)
_DELETES: Final = (
    ("", None),
    ("propagationPolicy=Background", None),
    ("propagationPolicy=Foreground", None),
    ("propagationPolicy=Orphan", None),
    ("propagationPolicy=x", None),
    ("gracePeriodSeconds=0", None),
    ("gracePeriodSeconds=-1", None),
    ("gracePeriodSeconds=x", None),
    ("orphanDependents=true", None),
    ("orphanDependents=x", None),
    ("dryRun=All", None),
    ("dryRun=x", None),
    ("", {"gracePeriodSeconds": 0}),
    ("", {"gracePeriodSeconds": 3}),
    ("", {"gracePeriodSeconds": "x"}),
    ("", {"gracePeriodSeconds": -1}),
    ("", {"preconditions": {"uid": "x"}}),
    ("", {"preconditions": {"uid": "<uid>"}}),
    ("", {"preconditions": {"resourceVersion": "1"}}),
    ("", {"preconditions": {"resourceVersion": "<version>"}}),
    ("", {"preconditions": 5}),
    ("", {"propagationPolicy": "Orphan"}),
    ("", {"propagationPolicy": 5}),
    ("", {"orphanDependents": False}),
    ("", {"dryRun": ["All"]}),
    ("", {"dryRun": "All"}),
    ("", {"dryRun": ["All", "All"]}),
    ("", {"apiVersion": "v1", "kind": "DeleteOptions"}),
    ("", {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"}),
    ("", {"apiVersion": "apps/v1", "kind": "DeleteOptions"}),
    ("", {"apiVersion": "v1", "kind": "Pod"}),
    ("", {"kind": "DeleteOptions", "nonsense": 1}),
    ("", "{"),
    ("", "[]"),
    ("", "null"),
    ("", "5"),
    ("", {"ignoreStoreReadErrorWithClusterBreakingPotential": True}),
    ("ignoreStoreReadErrorWithClusterBreakingPotential=x", None),
    ("propagationPolicy=Orphan", {"propagationPolicy": "Foreground"}),
)
_LISTS: Final = (
    "labelSelector=of%3D{name}",
    "labelSelector=of%3D{name}&limit=1",
    "labelSelector=of+in+({name},x)",
    "labelSelector=of+notin+(x),of%3D{name}",
    "labelSelector=of,of!%3Dx,of%3D{name}",
    "labelSelector=!of&fieldSelector=metadata.name%3D{name}",
    "labelSelector=of%3D%3D{name},of%3D{name}",
    "labelSelector=of+in+(,{name})",
    "labelSelector=of%3D{name},",
    "labelSelector=(",
    "labelSelector=of+in+{name}",
    "labelSelector=x%2Fy%2Fz",
    "labelSelector=of%3D%C3%BC",
    "labelSelector=a%3D" + "x" * 64,
    "fieldSelector=metadata.name%3D{name}",
    "fieldSelector=metadata.name%3D%3D{name}",
    "fieldSelector=metadata.name!%3D{name}&labelSelector=of%3D{name}",
    "fieldSelector=metadata.name%3D{name},metadata.name%3D{name}",
    "fieldSelector=metadata.name",
    "fieldSelector=%3Dx",
    "fieldSelector=metadata.name%3Dx%3Dy",
    "fieldSelector=spec.x%3Dy",
    "fieldSelector=metadata.labels%3Dy",
    "fieldSelector=status.phase%3Dx",
    "fieldSelector=metadata.namespace%3D" + NAMESPACE + "&labelSelector=of%3D{name}",
    "resourceVersion=0&labelSelector=of%3D{name}",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan&labelSelector=of%3D{name}",
    "resourceVersion=<version>&resourceVersionMatch=Exact&labelSelector=of%3D{name}",
    "resourceVersion=<version>&resourceVersionMatch=NotOlderThan&labelSelector=of%3D{name}",
    "resourceVersion=<version>&resourceVersionMatch=x&labelSelector=of%3D{name}",
    "resourceVersion=1x",
    "limit=-5&labelSelector=of%3D{name}",
    "limit=1.5",
    "limit=99999999999999999999",
    "limit=1&resourceVersionMatch=Exact",
    "limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0",
    "continue=%00",
    "timeoutSeconds=1&labelSelector=of%3D{name}",
    "timeoutSeconds=-1&labelSelector=of%3D{name}",
    "allowWatchBookmarks=x&labelSelector=of%3D{name}",
    "allowWatchBookmarks=true&labelSelector=of%3D{name}",
    "sendInitialEvents=true&labelSelector=of%3D{name}",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "watch=true&resourceVersion=abc",
    "watch=true&resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
    "watch=true&limit=1&labelSelector=(",
    "watch=1&fieldSelector=x",
)
_ACCEPTS: Final = (
    JSON,
    JSON,
    JSON,
    YAML,
    _TABLE,
    _PARTIAL,
    _PARTIAL_LIST,
    "text/html",
    "*/*",
    "application/*",
    "",
    "application/json;q=0.1,application/yaml;q=0.9",
    "application/json;as=Table;v=v2;g=meta.k8s.io",
    "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
    f"{_TABLE},application/json",
    "application/cbor",
    "application/json;stream=watch",
)
_NAMES: Final = (
    "",
    "A",
    "-a",
    "a" * 300,
    "a_b",
    "a.b",
    "a/b",
    "ü",
    "..",
    "a b",
    "1",
    "x" * 63,
    "x" * 64,
    "x" * 253,
    5,
    None,
)
_TYPES: Final = (
    "text/plain",
    "application/cbor",
    "application/json; charset=utf-8",
    "application/xml",
    "application/x-www-form-urlencoded",
    "application/vnd.kubernetes.protobuf",
    "nonsense",
    "application/merge-patch+json",
    "application/json;;",
)


def walks(kinds: Sequence[Kind], count: int, seed: int) -> Iterator[Case]:
    """Yield about `count` requests as cases of some steps each, of every kind in turn."""
    chance = random.Random(seed)
    able = [kind for kind in kinds if samples.has_sample(kind)]
    number, made = seed * 10_000, 0
    while made < count:
        for kind in able:
            number += 1
            case = _Walk(kind, f"walk{number}", chance).case()
            made += len(case.requests)
            yield case


class _Walk:
    """One object, and the steps that are taken with it."""

    def __init__(self, kind: Kind, wanted: str, chance: random.Random) -> None:
        self._kind = kind
        self._chance = chance
        self._wanted = wanted
        self._object = samples.sample(kind, wanted)
        self._path = f"{kind.path}/{self._object['metadata']['name']}"
        self._fields = list(fields.paths(kind.schema))  # type: ignore[arg-type]
        self._field = ""

    def case(self) -> Case:
        first = Request("POST", self._kind.path, "", self._object)
        requests = [first, self._look()]
        for _ in range(STEPS):
            step = self._chance.choice(_STEPS)
            for request in step(self):
                requests.append(request)
                if request.method != "GET":
                    requests.append(self._look())
        requests.append(Request("DELETE", self._path, "", {"gracePeriodSeconds": 0}))
        return Case(self._kind.label, self._field, "walk", tuple(requests))

    def _look(self) -> Request:
        return Request("GET", self._path)

    def _query(self) -> str:
        return self._chance.choice(_QUERIES)

    def _changed(self) -> tuple[fields.Path, Any, Any]:
        """Return a field, a value for it, and the object with it."""
        while True:
            path, schema = self._chance.choice(self._fields)
            value = self._chance.choice(list(fields.values(schema)))
            whole = fields.planted(self._object, self._kind.schema, path, value)  # type: ignore[arg-type]
            if whole is not None and path[0] != "status":
                self._field = folded(path)
                return path, value, whole

    def update(self) -> Iterator[Request]:
        _, _, whole = self._changed()
        yield Request("PUT", self._path, self._query(), whole)

    def versioned_update(self) -> Iterator[Request]:
        _, _, whole = self._changed()
        if isinstance(whole.get("metadata"), dict):
            version = self._chance.choice(["<version>", "<version>", "1", "0", "x", "", None, 5])
            whole["metadata"] = whole["metadata"] | {"resourceVersion": version}
            if self._chance.random() < 0.3:
                uid = self._chance.choice(["<uid>", "x", "", _OWNER["uid"]])
                whole["metadata"] = whole["metadata"] | {"uid": uid}
        yield Request("PUT", self._path, self._query(), whole)

    def yaml_update(self) -> Iterator[Request]:
        _, _, whole = self._changed()
        yield Request("PUT", self._path, self._query(), yaml.safe_dump(whole), YAML)

    def merge(self) -> Iterator[Request]:
        path, _, whole = self._changed()
        yield Request("PATCH", self._path, self._query(), _only(whole, path), MERGE)

    def strategic(self) -> Iterator[Request]:
        path, _, whole = self._changed()
        yield Request("PATCH", self._path, self._query(), _only(whole, path), STRATEGIC)

    def json_patch(self) -> Iterator[Request]:
        path, value, _ = self._changed()
        pointer = "".join(f"/{str(p).replace('~', '~0').replace('/', '~1')}" for p in path)
        kind = self._chance.choice(["add", "replace", "remove", "test", "copy", "move", "x"])
        operation: dict[str, Any] = {"op": kind, "path": pointer, "value": value}
        if kind in ("copy", "move"):
            operation["from"] = self._chance.choice(["/metadata/labels", "/metadata/name", pointer])
        if self._chance.random() < 0.1:
            operation.pop(self._chance.choice(["op", "path", "value"]))
        yield Request("PATCH", self._path, self._query(), [operation], JSON_PATCH)

    def apply(self) -> Iterator[Request]:
        _, _, whole = self._changed()
        query = self._chance.choice(
            [
                "fieldManager=one",
                "fieldManager=two&force=true",
                "fieldManager=two&force=false",
                "fieldManager=one&dryRun=All",
                "fieldManager=two&force=x",
                "force=true",
                "fieldManager=one&fieldValidation=Strict",
            ]
        )
        if self._chance.random() < 0.3:
            whole = {key: whole[key] for key in ("apiVersion", "kind", "metadata") if key in whole}
        if self._chance.random() < 0.2 and isinstance(whole.get("metadata"), dict):
            whole["metadata"] = whole["metadata"] | {"resourceVersion": "<version>"}
        yield Request("PATCH", self._path, query, whole, APPLY)

    def metadata(self) -> Iterator[Request]:
        name, values = self._chance.choice(
            [
                ("labels", _LABELS),
                ("annotations", (*_LABELS, {"a": "x" * 300_000}, {"A/b": "ü"})),
                ("finalizers", _FINALIZERS),
                ("ownerReferences", _OWNERS),
                ("name", _NAMES),
                ("namespace", ("other", "", None, 5, NAMESPACE)),
                ("generateName", ("x", "X-", None)),
                ("generation", (5, None, "x")),
                ("creationTimestamp", (None, "2001-02-03T04:05:06Z", "x")),
                ("deletionTimestamp", (None, "2001-02-03T04:05:06Z")),
                ("managedFields", (None, [], [{}], [{"manager": "x"}], "x")),
                ("selfLink", ("/x", None)),
                ("resourceVersion", ("1", "x", "<version>", "", None, 5, "0")),
                ("uid", ("x", "<uid>", None, "")),
                ("nonsense", (1,)),
            ]
        )
        value = self._chance.choice(values)  # type: ignore[arg-type]
        form = self._chance.choice([MERGE, STRATEGIC])
        yield Request("PATCH", self._path, self._query(), {"metadata": {name: value}}, form)

    def delete(self) -> Iterator[Request]:
        query, body = self._chance.choice(_DELETES)
        yield Request("DELETE", self._path, query, body)
        if self._chance.random() < 0.7:
            yield Request("POST", self._kind.path, "", self._object)

    def delete_yaml(self) -> Iterator[Request]:
        body = self._chance.choice(["propagationPolicy: Orphan", "a: [", "dryRun: [All]", "- x"])
        yield Request("DELETE", self._path, "", body, YAML)

    def delete_many(self) -> Iterator[Request]:
        select = f"labelSelector=of%3D{self._wanted}"
        more = self._chance.choice(
            ["", "&dryRun=All", "&limit=1", "&propagationPolicy=x", "&fieldSelector=x", "&limit=x"]
        )
        body = self._chance.choice([None, None, {"gracePeriodSeconds": 0}, {"kind": "Pod"}, "{"])
        yield Request("DELETE", self._kind.path, select + more, body)

    def create(self) -> Iterator[Request]:
        _, _, whole = self._changed()
        if isinstance(whole.get("metadata"), dict) and self._chance.random() < 0.3:
            whole["metadata"] = whole["metadata"] | {"name": self._chance.choice(_NAMES)}
        form = self._chance.choice([JSON, JSON, YAML])
        text: Any = yaml.safe_dump(whole) if form == YAML else whole
        more = "dryRun=All"
        if self._query() == "fieldValidation=Strict":
            more += "&fieldValidation=Strict"
        yield Request("POST", self._kind.path, more, text, form)

    def generate(self) -> Iterator[Request]:
        prefix = self._chance.choice(["x-", "X", "x" * 100, "a."])
        meta = {"generateName": prefix, "labels": {"of": self._wanted}}
        whole = self._object | {"metadata": meta}
        yield Request("POST", self._kind.path, "dryRun=All", whole)

    def other_type(self) -> Iterator[Request]:
        form = self._chance.choice(_TYPES)
        method = self._chance.choice(["POST", "PUT", "PATCH"])
        path = self._kind.path if method == "POST" else self._path
        yield Request(method, path, "dryRun=All", json.dumps(self._object), form)

    def list(self) -> Iterator[Request]:
        query = self._chance.choice(_LISTS).replace("{name}", self._wanted)
        accept = JSON if "watch=" in query else self._chance.choice(_ACCEPTS)
        yield Request("GET", self._kind.path, query, accept=accept)

    def get(self) -> Iterator[Request]:
        query = self._chance.choice(
            ["", "resourceVersion=0", "resourceVersion=<version>", "resourceVersion=x", "pretty=1"]
        )
        yield Request("GET", self._path, query, accept=self._chance.choice(_ACCEPTS))

    def part(self) -> Iterator[Request]:
        """A request to one of the subresources."""
        usual = sorted(self._kind.subresources - {"proxy", "log", "exec", "attach", "portforward"})
        part = self._chance.choice([*usual, "status", "scale", "nonsense"])
        path = f"{self._path}/{part}"
        method = self._chance.choice(["GET", "PUT", "PATCH", "POST", "DELETE"])
        form = self._chance.choice([MERGE, STRATEGIC, JSON_PATCH, APPLY])
        if part in _PART_BODIES:
            body = self._chance.choice(_PART_BODIES[part])
            if isinstance(body, dict):
                meta = {"name": self._object["metadata"]["name"], "namespace": NAMESPACE}
                body = {"metadata": meta} | body
        else:
            body = self._status()
        if method == "PATCH" and form == JSON_PATCH:
            body = [{"op": "add", "path": "/metadata/labels/j", "value": "k"}]
        query = "fieldManager=parts" if form == APPLY and method == "PATCH" else ""
        sent = None if method == "GET" else body
        yield Request(method, path, query, sent, form if method == "PATCH" else JSON)

    def _status(self) -> Any:
        for _ in range(50):
            path, schema = self._chance.choice(self._fields)
            if path[0] in ("status", "metadata"):
                value = self._chance.choice(list(fields.values(schema)))
                whole = fields.planted(self._object, self._kind.schema, path, value)  # type: ignore[arg-type]
                if whole is not None:
                    self._field = folded(path)
                    return whole
        return self._object | {"status": {}}

    def odd_path(self) -> Iterator[Request]:
        path = self._chance.choice(
            [
                f"{self._path}/",
                f"{self._path}/a/b/c",
                f"{self._kind.path}/",
                f"{self._kind.path}/none",
                f"{self._kind.path}/A_B",
                self._kind.path.replace(NAMESPACE, "nowhere"),
                self._kind.path.replace("/v1/", "/v9/"),
                self._kind.path + "x",
            ]
        )
        method = self._chance.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
        body = None if method in ("GET", "HEAD", "OPTIONS", "DELETE") else self._object
        if method == "DELETE" and not path.startswith(f"{self._path}/"):
            path = f"{self._kind.path}/none"
        query = "dryRun=All" if method in ("POST", "PUT", "PATCH") else ""
        yield Request(method, path, query, body, MERGE if method == "PATCH" else JSON)


_STEPS: Final[tuple[Callable[[_Walk], Iterator[Request]], ...]] = (
    _Walk.update,
    _Walk.versioned_update,
    _Walk.yaml_update,
    _Walk.merge,
    _Walk.merge,
    _Walk.strategic,
    _Walk.strategic,
    _Walk.json_patch,
    _Walk.json_patch,
    _Walk.apply,
    _Walk.apply,
    _Walk.apply,
    _Walk.metadata,
    _Walk.metadata,
    _Walk.delete,
    _Walk.delete_yaml,
    _Walk.delete_many,
    _Walk.create,
    _Walk.generate,
    _Walk.other_type,
    _Walk.list,
    _Walk.list,
    _Walk.get,
    _Walk.get,
    _Walk.part,
    _Walk.part,
    _Walk.odd_path,
)
_SCALES: Final = (
    {"spec": {"replicas": 3}},
    {"spec": {"replicas": -1}},
    {"spec": {"replicas": "x"}},
    {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}},
    {"apiVersion": "v1", "kind": "Scale"},
    {},
    "{",
)
_PART_BODIES: Final[dict[str, tuple[Any, ...]]] = {
    "scale": _SCALES,
    "eviction": (
        {"apiVersion": "policy/v1", "kind": "Eviction"},
        {"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": {"dryRun": ["All"]}},
        {"kind": "Eviction", "deleteOptions": {"preconditions": {"uid": "x"}}},
        {"kind": "Pod"},
        {"kind": "Eviction", "metadata": {"name": "other"}},
        {"deleteOptions": 5},
        "{",
        {},
    ),
    "binding": (
        {"target": {"kind": "Node", "name": "none"}},
        {"target": {"kind": "Pod", "name": "n"}},
        {"target": {}},
        {"apiVersion": "v1", "kind": "Binding"},
        {"kind": "Pod"},
        {"metadata": {"name": "other"}, "target": {"name": "n"}},
        "5",
    ),
    "token": (
        {"spec": {"expirationSeconds": 1}},
        {"spec": {"expirationSeconds": "x"}},
        {"spec": {"audiences": [5]}},
        {"spec": {"boundObjectRef": {"kind": "Pod", "name": "none"}}},
        {"spec": {"boundObjectRef": {"kind": "Nonsense", "name": "none"}}},
        {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1"}}},
        {"kind": "Pod", "apiVersion": "v1"},
        "[]",
    ),
    "ephemeralcontainers": (
        {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}},
        {"spec": {"ephemeralContainers": [{"name": "c", "image": "i"}]}},
        {"spec": {"ephemeralContainers": [{"name": "e"}]}},
        {"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "ports": [{}]}]}},
        {"spec": {"ephemeralContainers": 5}},
        {"spec": {"nodeName": "x"}},
    ),
    "resize": (
        {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "20m"}}}]}},
        {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "-1"}}}]}},
        {"spec": {"containers": [{"name": "c", "image": "other"}]}},
        {"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Mi"}}}]}},
        {"spec": 5},
    ),
    "finalize": (
        {"spec": {"finalizers": ["kubernetes"]}},
        {"spec": {"finalizers": ["bad"]}},
        {"spec": {"finalizers": []}},
        {},
    ),
    "approval": (
        {"status": {"conditions": [{"type": "Approved", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Approved", "status": "x"}]}},
        {"status": {"conditions": [{"type": "Denied"}]}},
        {"status": {"certificate": "YQ=="}},
    ),
}


def _only(document: Any, path: fields.Path) -> Any:
    """Return the part of the document on the way to the path: lists whole, siblings left out."""
    if not path or isinstance(path[0], int) or not isinstance(document, dict):
        return document
    return {path[0]: _only(document[path[0]], path[1:])}
