import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery import fields
from kedge.machinery.fields import Comparison, Fields
from kedge.machinery.schema import Schema

TEXT = Schema(type="string")
NUMBER = Schema(type="integer", format="int32")
TEXTS = Schema(type="map", items=TEXT)
PROTOCOL = Schema(type="string", keywords={"default": "TCP"})


def record(kind: str = "", /, **members: Schema) -> Schema:
    return Schema(type="object", name=kind and f"io.k8s.api.test.{kind}", fields=members)


def keyed(items: Schema, *keys: str) -> Schema:
    return Schema(type="list", items=items, list_type="map", list_keys=keys)


CONTAINER = record(
    name=TEXT,
    image=TEXT,
    args=Schema(type="list", items=TEXT),
    ports=keyed(record(containerPort=NUMBER, protocol=PROTOCOL), "containerPort", "protocol"),
    resources=record(limits=TEXTS),
)
OWNER = Schema(type="object", atomic=True, fields={"uid": TEXT, "name": TEXT})
META = Schema(
    type="object",
    name="io.k8s.api.test.ObjectMeta",
    fields={
        "name": TEXT,
        "labels": TEXTS,
        "finalizers": Schema(type="list", items=TEXT, list_type="set"),
        "ownerReferences": keyed(OWNER, "uid"),
    },
)
SPEC = Schema(
    type="object",
    name="io.k8s.api.test.PodSpec",
    required=("containers",),
    fields={
        "containers": keyed(CONTAINER, "name"),
        "nodeSelector": Schema(type="map", items=TEXT, atomic=True),
        "replicas": NUMBER,
        "strategy": Schema(type="object", fields={"type": TEXT}, keywords={"default": {}}),
        "policy": record(type=TEXT),
        "claims": Schema(type="map", items=record(size=TEXT)),
    },
)
POD = record("Pod", metadata=META, spec=SPEC, data=Schema(type="any"))
CUSTOM = Schema(type="object", fields={"metadata": META, "spec": Schema(type="object", open=True)})

A_POD = {
    "metadata": {
        "labels": {"app": "web"},
        "finalizers": ["kubernetes"],
        "ownerReferences": [{"uid": "u1", "name": "rs"}],
    },
    "spec": {
        "containers": [
            {
                "name": "c",
                "args": ["x"],
                "ports": [{"containerPort": 80}],
                "resources": {},
            }
        ],
        "nodeSelector": {"zone": "a"},
        "claims": {"x": {"size": "1"}},
    },
}


# Sets, checked against sets of paths.

elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"', "i:0"])
members = st.frozensets(st.lists(elements, min_size=1, max_size=4).map(tuple), max_size=8)


def tree(paths: frozenset[tuple[str, ...]]) -> Fields:
    result: Fields = {}
    for path in paths:
        branch: Fields = {}
        for element in reversed(path):
            branch = {element: branch}
        result = fields.union(result, branch)
    return result


def flat(tree: Fields) -> frozenset[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for element, inner in tree.items():
        if element == ".":
            continue
        if not inner or "." in inner:
            found.add((element,))
        found |= {(element, *path) for path in flat(inner)}
    return frozenset(found)


@given(members, members)
def test_sets_obey_the_algebra_of_sets(a: frozenset[Any], b: frozenset[Any]) -> None:
    x, y = tree(a), tree(b)
    before = copy.deepcopy((x, y))
    assert fields.union(x, y) == tree(a | b)
    assert fields.intersection(x, y) == tree(a & b)
    assert fields.difference(x, y) == tree(a - b)
    assert fields.is_empty(fields.difference(x, fields.union(x, y)))
    assert (x, y) == before


@given(members, members)
def test_without_drops_also_what_lies_below(a: frozenset[Any], b: frozenset[Any]) -> None:
    kept = {path for path in a if not any(path[: len(top)] == top for top in b)}
    assert fields.without(tree(a), tree(b)) == tree(frozenset(kept))


@given(members)
def test_a_set_contains_its_paths_and_no_others(a: frozenset[Any]) -> None:
    assert flat(tree(a)) == a
    assert all(fields.contains(tree(a), path) for path in a)
    holders = {path[:end] for path in a for end in range(len(path))} - a
    assert not any(fields.contains(tree(a), path) for path in holders)


@given(members)
def test_what_is_written_can_be_read(a: frozenset[Any]) -> None:
    assert fields.parsed(json.loads(json.dumps(tree(a)))) == tree(a)


def test_sent_elements_become_canonical() -> None:
    sent: Fields = {
        'k:{"protocol": "TCP", "containerPort": 80}': {".": {}},
        'v:"a&b"': {},
        "q:unknown": {},
    }
    assert fields.parsed(sent) == {
        'k:{"containerPort":80,"protocol":"TCP"}': {},
        'v:"a\\u0026b"': {},
    }


@pytest.mark.parametrize("sent", [[], {"name": {}}, {"k:x": {}}, {"k:[]": {}}, {"f:a": None}])
def test_what_is_no_set_is_refused(sent: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        fields.parsed(sent)


def test_paths_are_written_for_people() -> None:
    owned = {
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {}},
                },
            },
            "f:replicas": {},
        },
        "f:metadata": {"f:finalizers": {'v:"x"': {}}, "f:labels": {"f:app.io/name": {}}},
    }
    assert list(fields.paths(owned)) == [
        '.metadata.finalizers[="x"]',
        ".metadata.labels.app.io/name",
        ".spec.replicas",
        '.spec.containers[name="c"]',
        '.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"]',
    ]


# From documents.


def test_the_fields_of_an_applied_document_are_its_leaves_and_its_items() -> None:
    assert fields.of(POD, A_POD) == {
        "f:metadata": {
            "f:labels": {"f:app": {}},
            "f:finalizers": {'v:"kubernetes"': {}},
            "f:ownerReferences": {'k:{"uid":"u1"}': {}},
        },
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:name": {},
                    "f:args": {},
                    "f:ports": {
                        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                    },
                    "f:resources": {},
                }
            },
            "f:nodeSelector": {},
            "f:claims": {"f:x": {".": {}, "f:size": {}}},
        },
    }


def test_an_empty_list_sets_nothing_but_an_empty_map_does() -> None:
    document = {"metadata": {"labels": {}, "finalizers": []}, "spec": {"containers": []}}
    assert fields.of(POD, document) == {"f:metadata": {"f:labels": {}}}


def test_an_empty_list_of_a_new_object_belongs_to_its_creator() -> None:
    new = {"metadata": {"finalizers": []}, "spec": {"containers": [{"name": "c", "ports": []}]}}
    container: Fields = {".": {}, "f:name": {}, "f:ports": {}}
    expected: Fields = {
        "f:metadata": {"f:finalizers": {}},
        "f:spec": {"f:containers": {'k:{"name":"c"}': container}},
    }
    assert fields.new_fields(POD, new) == expected
    assert fields.compare(POD, {}, new) == (expected, {}, {})


def test_a_set_is_completed_with_the_declared_fields_that_hold_its_own() -> None:
    port: Fields = {'k:{"containerPort":80,"protocol":"TCP"}': {"f:containerPort": {}}}
    container: Fields = {'k:{"name":"c"}': {"f:ports": port}}
    assert fields.named(POD, {"f:spec": {"f:containers": container}}) == {
        "f:spec": {
            ".": {},
            "f:containers": {".": {}, 'k:{"name":"c"}': {"f:ports": {".": {}, **port}}},
        }
    }


def test_an_item_that_occurs_twice_counts_as_a_whole() -> None:
    document = {"spec": {"containers": [{"name": "c", "image": "a"}, {"name": "c"}]}}
    assert fields.of(POD, document) == {"f:spec": {"f:containers": {'k:{"name":"c"}': {}}}}


def test_where_the_schema_says_nothing_maps_are_granular_and_lists_are_not() -> None:
    document = {"spec": {"a": {"b": {"c": 1}, "d": [1, {"e": 2}]}}}
    assert fields.of(CUSTOM, document) == {
        "f:spec": {"f:a": {".": {}, "f:b": {".": {}, "f:c": {}}, "f:d": {}}}
    }


def test_keys_of_different_types_name_different_items() -> None:
    schema = Schema(
        type="list", items=record(id=Schema(type="any")), list_type="map", list_keys=("id",)
    )
    named = [fields.element_of(schema, {"id": value}) for value in (1, True, 1.0, "1")]
    assert named == ['k:{"id":1}', 'k:{"id":true}', 'k:{"id":1.0}', 'k:{"id":"1"}']


def test_an_item_without_any_key_has_no_name() -> None:
    with pytest.raises(ValueError, match='omits all key fields \\["name"\\]'):
        fields.element_of(keyed(CONTAINER, "name"), {"image": "a"})
    with pytest.raises(ValueError, match="no scalar"):
        fields.element_of(keyed(CONTAINER, "name"), {"name": {}})


# Between documents.


def test_a_created_object_adds_its_fields_and_what_holds_them() -> None:
    added = fields.compare(POD, {}, A_POD).added
    assert added == {
        "f:metadata": {
            "f:labels": {".": {}, "f:app": {}},
            "f:finalizers": {".": {}, 'v:"kubernetes"': {}},
            "f:ownerReferences": {".": {}, 'k:{"uid":"u1"}': {}},
        },
        # A real server's empty pod already has a spec with a list of containers.
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:name": {},
                    "f:args": {},
                    "f:ports": {
                        ".": {},
                        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}},
                    },
                    "f:resources": {},
                }
            },
            "f:nodeSelector": {},
            "f:claims": {".": {}, "f:x": {".": {}, "f:size": {}}},
        },
    }


def test_a_struct_that_is_always_there_is_not_added_by_filling_it() -> None:
    old: Fields = {"spec": {}}
    new = {"spec": {"strategy": {"type": "x"}, "policy": {"type": "y"}}}
    both: Fields = {"f:strategy": {"f:type": {}}, "f:policy": {".": {}, "f:type": {}}}
    assert fields.compare(POD, old, new) == ({"f:spec": both}, {}, {})
    assert fields.compare(POD, new, old) == ({}, {}, {"f:spec": both})
    assert fields.compare(POD, old, {"spec": {"strategy": {}}}) == ({}, {}, {})


def test_a_custom_object_has_only_what_it_was_given() -> None:
    assert fields.compare(CUSTOM, {}, {"spec": {"a": 1}}).added == {"f:spec": {".": {}, "f:a": {}}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"replicas": 1}, {"replicas": 2}, Comparison({}, {"f:replicas": {}}, {})),
        ({"replicas": 0}, {}, Comparison({}, {}, {"f:replicas": {}})),
        (
            {"nodeSelector": {"a": "1"}},
            {"nodeSelector": {"b": "1"}},
            Comparison({}, {"f:nodeSelector": {}}, {}),
        ),
        (
            {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]},
            {"containers": [{"name": "c"}, {"name": "a", "image": "y"}]},
            Comparison(
                {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}},
                {"f:containers": {'k:{"name":"a"}': {"f:image": {}}}},
                {"f:containers": {'k:{"name":"b"}': {".": {}, "f:name": {}}}},
            ),
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "b"}, {"name": "a"}]},
            Comparison({}, {}, {}),
        ),
        (
            {"containers": [{"name": "a"}, {"name": "a"}]},
            {"containers": [{"name": "a"}]},
            Comparison(
                {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}}}},
                {},
                {"f:containers": {'k:{"name":"a"}': {}}},
            ),
        ),
    ],
)
def test_changes_are_told_apart(old: Any, new: Any, expected: Comparison) -> None:
    def wrapped(part: Fields) -> Fields:
        return {"f:spec": part} if part else {}

    found = fields.compare(POD, {"spec": old}, {"spec": new})
    assert found == Comparison(*map(wrapped, expected))


# Laws over documents.

texts = st.sampled_from(["x", "y"])
labels = st.dictionaries(st.sampled_from("abc"), texts, min_size=1)


def some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=members)


containers = st.lists(
    st.builds(
        lambda name, rest: {"name": name, **rest},
        st.sampled_from("abcd"),
        some(image=texts, args=st.lists(texts, min_size=1), resources=some(limits=labels)),
    ),
    min_size=1,
    unique_by=lambda item: item["name"],
)
pods = some(
    metadata=some(labels=labels, finalizers=st.lists(texts, min_size=1, unique=True)),
    spec=some(
        containers=containers,
        nodeSelector=labels,
        replicas=st.integers(0, 2),
        claims=st.dictionaries(st.sampled_from("ab"), some(size=texts), min_size=1),
    ),
)


@given(pods)
def test_a_document_without_its_fields_is_empty(pod: dict[str, Any]) -> None:
    owned = fields.named(POD, fields.of(POD, pod))
    assert fields.remove(POD, pod, owned) == {}


@given(pods, pods)
def test_what_one_direction_adds_the_other_removes(a: dict[str, Any], b: dict[str, Any]) -> None:
    there, back = fields.compare(POD, a, b), fields.compare(POD, b, a)
    assert there == (back.removed, back.modified, back.added)
    assert not fields.intersection(there.added, there.removed)


@given(pods, pods)
def test_without_what_was_added_nothing_new_is_left(a: dict[str, Any], b: dict[str, Any]) -> None:
    before = copy.deepcopy(b)
    rest = fields.remove(POD, b, fields.compare(POD, a, b).added)
    added = fields.compare(POD, a, rest).added
    assert not added
    assert b == before


def test_removal_takes_items_and_leaves_null_where_nothing_is_left() -> None:
    gone = {
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:containers": {'k:{"name":"c"}': {"f:args": {}, "f:ports": {".": {}}}},
            "f:claims": {"f:x": {}},
        },
    }
    assert fields.remove(POD, A_POD, gone) == {
        "metadata": {
            "labels": None,
            "finalizers": ["kubernetes"],
            "ownerReferences": [{"uid": "u1", "name": "rs"}],
        },
        "spec": {
            "containers": [{"name": "c", "resources": {}}],
            "nodeSelector": {"zone": "a"},
            "claims": None,
        },
    }


@given(pods)
def test_what_a_new_object_brings_is_what_comparing_it_with_nothing_finds(
    pod: dict[str, Any],
) -> None:
    found = fields.compare(POD, {}, pod)
    assert fields.new_fields(POD, pod) == fields.union(found.added, found.modified)
    assert found.removed == {}
