"""Cases of several requests: lives of objects, owners of fields, lists, watches and deletes."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

from tests.differential import samples
from tests.differential.cases import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Case,
    Kind,
    Request,
)

_NUMBERS: Final = count(1)


def sequences(kinds: Sequence[Kind]) -> Iterator[Case]:
    """Yield every sequence for every kind that has a sample."""
    for kind in kinds:
        if samples.has_sample(kind):
            for make in _ALL:
                yield from make(kind)


class _Place:
    """A new object of a kind that no other case uses."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.wanted = f"seq{next(_NUMBERS)}"
        self.object = samples.sample(kind, self.wanted)
        self.name = self.object["metadata"]["name"]
        self.path = f"{kind.path}/{self.name}"

    def create(self, **changes: Any) -> Request:
        return Request("POST", self.kind.path, "", self.object | changes)

    def get(self) -> Request:
        return Request("GET", self.path)

    def delete(self, body: Any = None, query: str = "") -> Request:
        return Request("DELETE", self.path, query, body)

    def patch(self, body: Any, form: str = MERGE, query: str = "", part: str = "") -> Request:
        return Request("PATCH", self.path + part, query, body, form)

    def put(self, body: Any, query: str = "", part: str = "") -> Request:
        return Request("PUT", self.path + part, query, body)

    def labelled(self, **labels: str) -> dict[str, Any]:
        """The object with other labels."""
        metadata = {**self.object["metadata"], "labels": labels}
        return {**self.object, "metadata": metadata}

    def case(self, action: str, *requests: Request, watch: Request | None = None) -> Case:
        return Case(self.kind.label, "", action, (*requests, self.delete(_AT_ONCE)), watch)


_AT_ONCE: Final = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


def _life(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    versioned = place.labelled(a="b")
    versioned["metadata"]["resourceVersion"] = "<version>"
    yield place.case(
        "life",
        place.get(),
        place.create(),
        place.create(),
        place.get(),
        place.put(versioned),
        place.put(versioned),
        place.put(place.labelled(a="c")),
        place.delete(),
        place.get(),
    )


def _updates(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    other = place.labelled()
    other["metadata"]["name"] = "other"
    stale, uid = place.labelled(), place.labelled()
    stale["metadata"]["resourceVersion"] = "1"
    uid["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    zero = place.labelled()
    zero["metadata"]["resourceVersion"] = "0"
    nonsense = place.labelled()
    nonsense["metadata"]["resourceVersion"] = "x"
    yield place.case(
        "updates",
        place.put(place.object),
        place.put(stale),
        place.create(),
        place.put({}),
        place.put(other),
        place.put(stale),
        place.put(uid),
        place.put(zero),
        place.put(nonsense),
        place.put({**place.object, "kind": "Other"}),
        place.put({**place.object, "apiVersion": "other/v1"}),
        place.put({**place.object, "apiVersion": ""}),
        place.put("{"),
        place.put("[]"),
        place.put('"a"'),
        place.put(""),
        place.put("null"),
        place.put({**place.object, "unknown": 1}, "fieldValidation=Strict"),
        place.put({**place.object, "unknown": 1}, "fieldValidation=Warn"),
        place.put({**place.object, "unknown": 1}, "fieldValidation=Other"),
        place.put(place.object, "dryRun=Some"),
    )


def _metadata(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    yield place.case(
        "metadata",
        place.create(),
        place.patch({"metadata": {"deletionTimestamp": "2001-02-03T04:05:06Z"}}),
        place.patch({"metadata": {"deletionGracePeriodSeconds": 5}}),
        place.patch({"metadata": {"creationTimestamp": None}}),
        place.patch({"metadata": {"generation": 77}}),
        place.patch({"metadata": {"uid": "u"}}),
        place.patch({"metadata": {"namespace": "other"}}),
        place.patch({"metadata": {"selfLink": "/x"}}),
        place.patch({"metadata": {"generateName": "x-"}}),
        place.patch({"metadata": {"ownerReferences": [owner]}}),
        place.patch({"metadata": {"ownerReferences": [owner, owner]}}),
        place.patch({"metadata": {"finalizers": ["bad"]}}),
        place.patch({"metadata": {"finalizers": ["example.com/a"]}}),
        place.delete(),
        place.patch({"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}),
        place.delete({"propagationPolicy": "Foreground"}),
        place.patch({"metadata": {"finalizers": []}}),
        place.get(),
    )


def _patches(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    test = [{"op": "test", "path": "/metadata/labels/of", "value": "x"}]
    yield place.case(
        "patches",
        place.patch({"metadata": {"labels": {"a": "b"}}}),
        place.create(),
        place.patch({}),
        place.patch({"metadata": None}),
        place.patch({"metadata": {"labels": None}}),
        place.patch({"metadata": {"labels": {"a": 5}}}),
        place.patch({"metadata": {"resourceVersion": "1"}}),
        place.patch({"metadata": {"name": "other"}}),
        place.patch("{"),
        place.patch("[]"),
        place.patch("5"),
        place.patch("null"),
        place.patch([], JSON_PATCH),
        place.patch(test, JSON_PATCH),
        place.patch([{"op": "remove", "path": "/metadata/labels/none"}], JSON_PATCH),
        place.patch([{"op": "remove", "path": "/metadata/name"}], JSON_PATCH),
        place.patch([{"op": "add", "path": "/none/deeper", "value": 1}], JSON_PATCH),
        place.patch([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}], JSON_PATCH),
        place.patch(
            [{"op": "copy", "from": "/metadata/labels/x", "path": "/metadata/labels/z"}], JSON_PATCH
        ),
        place.patch(
            [{"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/w"}], JSON_PATCH
        ),
        place.patch([{"op": "none", "path": "/metadata"}], JSON_PATCH),
        place.patch([{"op": "replace", "path": "/metadata/labels/none", "value": "v"}], JSON_PATCH),
        place.patch({}, JSON_PATCH),
        place.patch({"metadata": {"labels": {"s": "t"}}}, STRATEGIC),
        place.patch({"metadata": {"labels": {"$patch": "replace", "s": "u"}}}, STRATEGIC),
        place.patch({"$patch": "delete"}, STRATEGIC),
        place.patch({"metadata": {"$patch": "nonsense"}}, STRATEGIC),
        place.patch({"kind": "Other"}, STRATEGIC),
        place.patch({"metadata": {"labels": 5}}, STRATEGIC),
        place.patch({"unknown": 1}, MERGE, "fieldValidation=Strict"),
        place.patch({"unknown": 1}, STRATEGIC, "fieldValidation=Strict"),
        place.patch({}, "text/plain"),
        place.patch({}, MERGE, "force=true"),
        place.patch({}, MERGE, "fieldManager=" + "x" * 200),
    )


def _applies(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    bare = {key: place.object[key] for key in ("apiVersion", "kind")}
    named = bare | {"metadata": {"name": place.name}}
    labelled = bare | {"metadata": {"name": place.name, "labels": {"of": "x"}}}
    versioned = bare | {"metadata": {"name": place.name, "resourceVersion": "1"}}

    def apply(body: Any, by: str, more: str = "") -> Request:
        return place.patch(body, APPLY, f"fieldManager={by}{more}")

    yield place.case(
        "applies",
        apply(versioned, "one"),
        apply(place.object, "one"),
        apply(place.object, "one"),
        apply(labelled, "two"),
        apply(labelled, "two", "&force=true"),
        apply(named, "two"),
        apply(place.object, "one"),
        apply(named, "one"),
        apply({}, "one"),
        apply({**named, "kind": "Other"}, "one"),
        apply({**named, "metadata": {"name": "other"}}, "one"),
        apply({**named, "metadata": {"name": place.name, "managedFields": []}}, "one"),
        apply({**named, "metadata": {"name": place.name, "managedFields": [{}]}}, "one"),
        apply({**named, "unknown": 1}, "one"),
        apply("{", "one"),
        apply("a: [", "one"),
        apply("5", "one"),
        place.patch(named, APPLY),
        place.patch({"metadata": {"managedFields": [{}]}}),
        place.get(),
    )


def _deletes(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    another = {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}
    yield place.case(
        "deletes",
        place.delete(),
        place.create(),
        place.delete(another),
        place.delete({"preconditions": {"resourceVersion": "1"}}),
        place.delete({"propagationPolicy": "Nonsense"}),
        place.delete({"orphanDependents": True, "propagationPolicy": "Orphan"}),
        place.delete({"gracePeriodSeconds": -5, "dryRun": ["All"]}),
        place.delete({"dryRun": ["Some"]}),
        place.delete({"unknown": 1}),
        place.delete({"kind": "Other", "apiVersion": "v1"}),
        place.delete("{"),
        place.delete("[]"),
        place.delete(None, "dryRun=All"),
        place.delete(None, "propagationPolicy=Orphan"),
        place.get(),
        place.patch({"metadata": {"finalizers": None}}),
        place.delete({"preconditions": {"uid": "<uid>", "resourceVersion": "<version>"}}),
    )


def _status(kind: Kind) -> Iterator[Case]:
    if "status" not in kind.subresources:
        return
    place = _Place(kind)
    yield place.case(
        "status",
        Request("GET", f"{place.path}/status"),
        place.create(),
        Request("GET", f"{place.path}/status"),
        place.put({**place.object, "status": {}}, part="/status"),
        place.put({}, part="/status"),
        place.patch({"status": {}}, part="/status"),
        place.patch({"status": None}, part="/status"),
        place.patch({"status": 5}, part="/status"),
        place.patch({"spec": {"a": 5}, "metadata": {"labels": {"c": "d"}}}, part="/status"),
        place.patch(
            [{"op": "add", "path": "/status/unknown", "value": 1}], JSON_PATCH, "", "/status"
        ),
        place.get(),
    )


def _scale(kind: Kind) -> Iterator[Case]:
    if "scale" not in kind.subresources:
        return
    place = _Place(kind)
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": place.name, "namespace": "differential"},
        "spec": {"replicas": 3},
    }
    yield place.case(
        "scale",
        Request("GET", f"{place.path}/scale"),
        place.put(scale, part="/scale"),
        place.create(),
        Request("GET", f"{place.path}/scale"),
        place.put({}, part="/scale"),
        place.put(scale, part="/scale"),
        place.put({**scale, "spec": {"replicas": -1}}, part="/scale"),
        place.put({**scale, "spec": {"replicas": "a"}}, part="/scale"),
        place.put({**scale, "metadata": {"name": "other"}}, part="/scale"),
        place.put({**scale, "kind": "Other"}, part="/scale"),
        place.patch({"spec": {"replicas": 4}}, part="/scale"),
        place.patch({"spec": {"replicas": "a"}}, part="/scale"),
        place.patch({"spec": {"replicas": 5}}, STRATEGIC, "", "/scale"),
        place.patch(
            [{"op": "replace", "path": "/spec/replicas", "value": 2}], JSON_PATCH, "", "/scale"
        ),
        place.patch(scale, APPLY, "fieldManager=scaler", "/scale"),
        place.patch(scale, APPLY, "fieldManager=scaler&force=true", "/scale"),
        place.get(),
    )


_QUERIES: Final = (
    "limit=1",
    "limit=-1&labelSelector=of%3D{name}",
    "limit=x",
    "continue=x",
    "labelSelector=of%3D{name}",
    "labelSelector=of+in+({name},b),!none",
    "labelSelector=of==",
    "labelSelector=a!b",
    "labelSelector=a+in+()",
    "labelSelector=a>1",
    "labelSelector=a>b",
    "labelSelector=-bad+in+(x)",
    "fieldSelector=metadata.name%3D{name}",
    "fieldSelector=metadata.namespace%3Ddifferential&labelSelector=of%3D{name}",
    "fieldSelector=metadata.nonsense%3Dx",
    "fieldSelector=spec.nodeName%3Dx",
    "fieldSelector=a",
    "fieldSelector=type%3Dx",
    "resourceVersion=x",
    "resourceVersion=-1",
    "resourceVersion=99999999999",
    "resourceVersionMatch=Exact",
    "resourceVersion=1&resourceVersionMatch=Nonsense",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "timeoutSeconds=x",
    "watch=x&timeoutSeconds=1&labelSelector=of%3D{name}",
    "sendInitialEvents=true",
    "sendInitialEvents=x",
    "watch=true&sendInitialEvents=true&timeoutSeconds=1&labelSelector=of%3D{name}",
    "watch=true&resourceVersion=x",
    "watch=true&resourceVersionMatch=Exact&timeoutSeconds=1&labelSelector=of%3D{name}",
    "watch=true&labelSelector=a!b",
    "watch=true&fieldSelector=metadata.nonsense%3Dx",
    "watch=true&resourceVersion=1&continue=x&timeoutSeconds=1&labelSelector=of%3D{name}",
    "pretty=x&labelSelector=of%3D{name}",
    "unknown=x&labelSelector=of%3D{name}",
)


def _lists(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    queries = [query.replace("{name}", place.wanted) for query in _QUERIES]
    lists = [Request("GET", kind.path, query) for query in queries if query != "limit=1"]
    yield place.case("lists", place.create(), *lists)


def _pages(kind: Kind) -> Iterator[Case]:
    one, two = _Place(kind), _Place(kind)
    second = {**two.object, "metadata": {**two.object["metadata"], "labels": {"of": one.wanted}}}
    select = f"labelSelector=of%3D{one.wanted}"
    yield one.case(
        "pages",
        one.create(),
        Request("POST", kind.path, "", second),
        Request("GET", kind.path, f"{select}&limit=1"),
        Request("GET", kind.path, f"{select}&limit=1&continue=<continue>"),
        Request("GET", kind.path, f"{select}&limit=1&continue=<continue>"),
        Request("DELETE", kind.path, f"{select}&dryRun=All"),
        Request("DELETE", kind.path, f"{select}&dryRun=Some"),
        Request("DELETE", kind.path, "labelSelector=a!b"),
        Request("DELETE", kind.path, f"{select}&limit=1"),
        Request("GET", kind.path, select),
        Request("DELETE", kind.path, select, _AT_ONCE),
        Request("GET", kind.path, select),
    )


def _churn(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    watch = Request(
        "GET", kind.path, f"watch=true&timeoutSeconds=2&labelSelector=of%3D{place.wanted}"
    )
    yield place.case(
        "churn",
        place.create(),
        place.patch({"metadata": {"annotations": {"a": "1"}}}),
        place.patch({"metadata": {"labels": {"of": "elsewhere"}}}),
        place.patch({"metadata": {"annotations": {"a": "2"}}}),
        place.patch({"metadata": {"labels": {"of": place.wanted}}}),
        place.patch({"metadata": {"finalizers": ["example.com/f"]}}),
        place.delete(_AT_ONCE),
        place.patch({"metadata": {"finalizers": None}}),
        watch=watch,
    )


def _forms(kind: Kind) -> Iterator[Case]:
    place = _Place(kind)
    nameless = {**place.object, "metadata": {"labels": {"of": place.wanted}}}
    elsewhere = {**place.object["metadata"], "namespace": "other"}
    yield place.case(
        "forms",
        Request("POST", kind.path, "", {}),
        Request("POST", kind.path, "", "{"),
        Request("POST", kind.path, "", ""),
        Request("POST", kind.path, "", "5"),
        Request("POST", kind.path, "", "[]"),
        Request("POST", kind.path, "", nameless),
        Request("POST", kind.path, "", {**place.object, "kind": "Other"}),
        Request("POST", kind.path, "", {**place.object, "kind": ""}),
        Request("POST", kind.path, "", {**place.object, "apiVersion": "v7"}),
        Request("POST", kind.path, "", {**place.object, "apiVersion": ""}),
        Request("POST", kind.path, "", {**place.object, "metadata": elsewhere}),
        Request("POST", kind.path, "", {**place.object, "metadata": 5}),
        Request("POST", kind.path, "", {**place.object, "metadata": None}),
        Request("POST", kind.path, "", {**place.object, "spec": 5}),
        Request("POST", kind.path, "fieldValidation=Strict", {**place.object, "x": 1, "y": 2}),
        Request("POST", kind.path, "dryRun=All", place.object),
        Request("POST", kind.path, "dryRun=all", place.object),
        Request("POST", kind.path, "", place.object, "text/plain"),
        Request("POST", kind.path, "fieldManager=%00", place.object),
        Request("POST", f"{kind.path}/{place.name}", "", place.object),
        Request("PATCH", kind.path, "", {}, MERGE),
        Request("PUT", kind.path, "", place.object),
    )


_ALL: Final = (
    _life,
    _updates,
    _metadata,
    _patches,
    _applies,
    _deletes,
    _status,
    _scale,
    _lists,
    _pages,
    _churn,
    _forms,
)
