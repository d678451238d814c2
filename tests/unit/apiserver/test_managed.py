import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.apiserver import managed
from kedge.apiserver.managed import ApplyConflict, Document, Entry
from kedge.machinery import fields
from kedge.machinery.errors import StatusError
from kedge.machinery.fields import Fields
from kedge.machinery.schema import Schema
from kedge.machinery.shape import fit

TEXT = Schema(type="string")
TEXTS = Schema(type="map", items=TEXT)
META = Schema(
    type="object",
    name="io.k8s.api.test.ObjectMeta",
    fields={
        "name": TEXT,
        "namespace": TEXT,
        "uid": TEXT,
        "resourceVersion": TEXT,
        "creationTimestamp": Schema(type="time"),
        "generation": Schema(type="integer"),
        "labels": TEXTS,
        "annotations": TEXTS,
        "finalizers": Schema(type="list", items=TEXT, list_type="set"),
        "managedFields": Schema(type="list", items=Schema(type="any")),
    },
)
PORT = Schema(
    type="object",
    fields={
        "port": Schema(type="integer"),
        "protocol": Schema(type="string", default="TCP"),
        "name": TEXT,
    },
)
SPEC = Schema(
    type="object",
    fields={
        "replicas": Schema(type="integer"),
        "ports": Schema(type="list", items=PORT, list_type="map", list_keys=("port", "protocol")),
        "args": Schema(type="list", items=TEXT),
    },
)
THING = Schema(
    type="object",
    name="io.k8s.api.test.Thing",
    fields={
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": META,
        "data": TEXTS,
        "spec": SPEC,
        "status": Schema(type="object", fields={"phase": TEXT, "replicas": Schema(type="integer")}),
    },
)
NO_STATUS: Fields = {"f:status": {}}
ONLY_STATUS: Fields = {"f:spec": {}, "f:data": {}, "f:metadata": {}}
DAY1, DAY2, DAY3 = (f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3))


def thing(meta: Document | None = None, **rest: Any) -> Document:
    named = {"name": "t", "namespace": "ns", **(meta or {})}
    return {"apiVersion": "test/v1", "kind": "Thing", "metadata": named, **rest}


def update(
    live: Document | None, new: Document, manager: str = "m", now: str = DAY1, **more: Any
) -> Document:
    """The object that an update stores: without the managedFields it leaves those to the server."""
    entries = managed.after_update(
        THING, live, new, manager=manager, api_version="test/v1", now=now, **more
    )
    meta = {k: v for k, v in new["metadata"].items() if k != "managedFields"}
    if live is None:
        meta["uid"] = "u1"
    return {**new, "metadata": {**meta, "managedFields": entries} if entries else meta}


def apply(
    live: Document | None,
    config: Document,
    manager: str = "m",
    now: str = DAY1,
    force: bool = False,
    **more: Any,
) -> Document:
    return managed.apply(
        THING,
        live,
        config,
        manager=manager,
        force=force,
        api_version="test/v1",
        now=now,
        settle=lambda document: fit(THING, document, []),
        **more,
    )


def changed(live: Document, **rest: Any) -> Document:
    return {**live, **rest}


def owned(document: Document) -> dict[str, Fields]:
    return {e["manager"]: e["fieldsV1"] for e in document["metadata"].get("managedFields", [])}


def times(document: Document) -> dict[str, str]:
    return {e["manager"]: e.get("time", "") for e in document["metadata"]["managedFields"]}


# Updates.


def test_who_creates_an_object_owns_what_he_set_but_not_what_identifies_it() -> None:
    new = thing({"labels": {"a": "b"}, "uid": "u", "generation": 1}, data={"k": "v"})
    assert managed.after_update(
        THING, None, new, manager="kubectl-create", api_version="test/v1", now=DAY1
    ) == [
        {
            "manager": "kubectl-create",
            "operation": "Update",
            "apiVersion": "test/v1",
            "time": DAY1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:data": {".": {}, "f:k": {}},
            },
        }
    ]


def test_an_update_takes_the_fields_that_it_changes() -> None:
    live = update(None, thing(data={"a": "1", "b": "1"}), "one")
    after = update(live, changed(live, data={"a": "2", "b": "1", "c": "1"}), "two", DAY2)
    assert owned(after) == {
        "one": {"f:data": {".": {}, "f:b": {}}},
        "two": {"f:data": {"f:a": {}, "f:c": {}}},
    }
    assert times(after) == {"one": DAY1, "two": DAY2}


def test_a_second_change_by_the_same_manager_moves_the_time_of_its_entry() -> None:
    live = update(None, thing(data={"a": "1", "b": "1"}), "one")
    after = update(live, changed(live, data={"a": "2", "b": "1"}), "one", DAY2)
    assert owned(after) == owned(live)
    assert times(after) == {"one": DAY2}


def test_an_update_that_changes_nothing_leaves_the_entries_alone() -> None:
    live = update(None, thing(data={"a": "1"}), "one")
    assert update(live, copy.deepcopy(live), "two", DAY2) == live


def test_a_removed_field_is_nobodys_and_an_empty_entry_vanishes() -> None:
    live = update(None, thing(data={"a": "1"}), "one")
    live = update(live, changed(live, spec={"replicas": 1}), "two", DAY2)
    after = update(live, {k: v for k, v in live.items() if k != "data"}, "three", DAY3)
    assert owned(after) == {"two": {"f:spec": {"f:replicas": {}}}}
    assert times(after) == {"two": DAY2}


def test_status_and_the_rest_are_owned_through_different_entries() -> None:
    live = update(None, thing(spec={"replicas": 1}, status={"phase": "x"}), ignore=NO_STATUS)
    running = changed(live, status={"phase": "Running"})
    after = update(live, running, now=DAY2, subresource="status", ignore=ONLY_STATUS)
    entries = after["metadata"]["managedFields"]
    assert [(e["manager"], e.get("subresource"), e["fieldsV1"]) for e in entries] == [
        ("m", None, {"f:spec": {"f:replicas": {}}}),
        ("m", "status", {"f:status": {"f:phase": {}}}),
    ]


def test_a_subresource_cannot_set_managed_fields() -> None:
    live = update(None, thing(data={"a": "1"}), "one")
    sent = {**live, "metadata": {**live["metadata"], "managedFields": [{}]}}
    assert update(live, sent, "two", subresource="status", ignore=ONLY_STATUS) == live


@pytest.mark.parametrize("reset", [[], [{}]])
def test_tracking_ends_when_the_managed_fields_are_emptied(reset: list[Entry]) -> None:
    live = update(None, thing(data={"a": "1"}), "one")
    sent = {**live, "metadata": {**live["metadata"], "managedFields": reset}}
    after = update(live, sent, "two", DAY2)
    assert owned(after) == {}
    assert owned(update(after, changed(after, data={"a": "2"}), "three")) == {}
    assert (
        managed.after_update(THING, live, sent, manager="two", api_version="test/v1", now=DAY2)
        == []
    )


@pytest.mark.parametrize("sent", [[], [{}]])
def test_a_new_object_is_tracked_whatever_managed_fields_it_comes_with(sent: list[Entry]) -> None:
    new = thing({"managedFields": sent}, data={"a": "1"})
    assert owned(update(None, new, "one")) == {"one": {"f:data": {".": {}, "f:a": {}}}}


def test_a_copy_of_an_object_keeps_the_owners_of_the_original() -> None:
    original = update(None, thing(data={"a": "1"}), "one")
    entry = {**original["metadata"]["managedFields"][0], "fieldsV1": {"f:spec": {}}}
    copied = thing({"managedFields": [entry]}, data={"a": "1"})
    assert owned(update(None, copied, "two")) == {
        "one": {"f:spec": {}},
        "two": {"f:data": {".": {}, "f:a": {}}},
    }


def test_a_manager_without_a_name_is_unknown() -> None:
    assert [*owned(update(None, thing(data={"a": "1"}), ""))] == ["unknown"]
    assert [*owned(apply(None, thing(data={"a": "1"}), ""))] == ["unknown"]


def test_fields_that_an_endpoint_ignores_have_no_owner() -> None:
    new = thing(data={"a": "1"}, status={"phase": "x"})
    assert owned(update(None, new, "one", ignore=NO_STATUS)) == {
        "one": {"f:data": {".": {}, "f:a": {}}}
    }


def test_the_fields_of_a_new_object_are_listed_in_order() -> None:
    new = {"metadata": {"labels": {}}, "spec": {"replicas": 1}, "data": {"b": "", "a": ""}}
    expected = (
        b'{"f:data":{".":{},"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{}},'
        b'"f:spec":{"f:replicas":{}}}'
    )
    found = managed.of_new(THING, json.dumps(new).encode())
    assert found is not None
    assert bytes(found) == expected
    long = managed.of_new(THING, json.dumps(new).encode().ljust(managed.REMEMBERED_LENGTH))
    assert long is not None
    assert bytes(long) == expected


@pytest.mark.parametrize("new", [{"kind": "Thing"}, {"spec": {"ports": [{"protocol": None}]}}])
def test_a_new_object_may_own_nothing(new: Document) -> None:
    assert managed.of_new(THING, json.dumps(new).encode()) is None


def test_results_for_long_documents_are_not_remembered() -> None:
    def looked_up() -> int:
        info = managed._of_new_cached.cache_info()
        return info.hits + info.misses

    before = looked_up()
    encoded = json.dumps({"data": {"remembered": "x"}}).encode()
    managed.of_new(THING, encoded.ljust(managed.REMEMBERED_LENGTH))
    assert looked_up() == before
    managed.of_new(THING, encoded.ljust(managed.REMEMBERED_LENGTH - 1))
    assert looked_up() == before + 1


def test_missing_managed_fields_are_no_reset() -> None:
    live = update(None, thing(data={"a": "1"}), "one")
    sent = {**live, "metadata": {k: v for k, v in live["metadata"].items() if k != "managedFields"}}
    assert owned(update(live, sent, "two")) == owned(live)


def test_managed_fields_may_be_rewritten_by_a_client() -> None:
    live = update(None, thing(data={"a": "1"}), "kubectl-client-side-apply")
    entry = {**live["metadata"]["managedFields"][0], "manager": "kubectl", "operation": "Apply"}
    sent = {**live, "metadata": {**live["metadata"], "managedFields": [entry]}}
    assert update(live, sent, "kubectl")["metadata"]["managedFields"] == [entry]
    renamed = {**live["metadata"]["managedFields"][0], "manager": "renamed"}
    sent = {**live, "metadata": {**live["metadata"], "managedFields": [renamed]}}
    assert update(live, sent, "kubectl")["metadata"]["managedFields"] == [renamed]


def test_entries_are_ordered_by_operation_time_manager_version_and_subresource() -> None:
    rows = [
        ("Apply", DAY2, "z", "test/v1", ""),
        ("Update", DAY1, "b", "test/v1", ""),
        ("Update", DAY2, "a", "test/v2", "status"),
        ("Update", DAY2, "b", "test/v1", "status"),
        ("Update", DAY2, "b", "test/v2", ""),
        ("Update", DAY2, "b", "test/v2", "status"),
    ]
    entries = [
        {
            "operation": operation,
            "time": time,
            "manager": manager,
            "apiVersion": version,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {f"f:{i}": {}}},
        }
        | ({"subresource": subresource} if subresource else {})
        for i, (operation, time, manager, version, subresource) in enumerate(rows)
    ]
    live = update(None, thing(data={"a": "1"}), "one")
    for turned in (entries[::-1], entries[3:] + entries[:3]):
        sent = {**live, "metadata": {**live["metadata"], "managedFields": turned}}
        assert update(live, sent, "two")["metadata"]["managedFields"] == entries


def test_updaters_that_come_all_at_once_are_merged_to_ten() -> None:
    live = update(None, thing(data={"a": "1"}), "one")
    (entry,) = live["metadata"]["managedFields"]
    many = [
        {**entry, "manager": f"m{i:02}", "time": f"2026-01-01T00:00:{i:02}Z"}
        | {"fieldsV1": {"f:data": {f"f:{i}": {}}}}
        for i in range(16)
    ]
    sent = {**live, "metadata": {**live["metadata"], "managedFields": many}}
    first, *rest = update(live, sent, "two")["metadata"]["managedFields"]
    assert first == {
        **entry,
        "manager": "ancient-changes",
        "time": "2026-01-01T00:00:06Z",
        "fieldsV1": {"f:data": {f"f:{i}": {} for i in range(7)}},
    }
    assert rest == many[7:]


@pytest.mark.parametrize(
    "fault",
    [{"operation": "Guess"}, {"apiVersion": ""}, {"fieldsType": "V2"}, {"fieldsV1": {"x": {}}}],
)
def test_managed_fields_that_cannot_be_read_are_ignored(fault: Entry) -> None:
    live = update(None, thing(data={"a": "1"}), "one")
    entry = {**live["metadata"]["managedFields"][0], "manager": "thief", **fault}
    sent = {**live, "metadata": {**live["metadata"], "managedFields": [entry]}}
    assert owned(update(live, sent, "two")) == owned(live)


def test_more_than_ten_updaters_share_an_entry_for_the_oldest() -> None:
    live = update(None, thing(data={"k0": "x"}), "m0", "2026-01-01T00:00:00Z")
    for i in range(1, 13):
        new = changed(live, data={**live["data"], f"k{i}": "x"})
        live = update(live, new, f"m{i}", f"2026-01-01T00:00:{i:02}Z")
    entries = live["metadata"]["managedFields"]
    assert [e["manager"] for e in entries] == ["ancient-changes", *(f"m{i}" for i in range(4, 13))]
    assert entries[0]["fieldsV1"] == {
        "f:data": {".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}}
    }
    assert entries[0]["time"] == "2026-01-01T00:00:03Z"


def test_a_list_whose_items_have_no_key_is_not_tracked() -> None:
    new = thing(spec={"ports": [{"name": "x", "protocol": None}]})
    assert (
        managed.after_update(THING, None, new, manager="m", api_version="test/v1", now=DAY1) == []
    )


# Apply.


def test_apply_creates_the_object_and_owns_what_it_says() -> None:
    config = thing({"labels": {"a": "b"}}, spec={"ports": [{"port": 80, "name": "web"}]})
    after = apply(None, config)
    assert {k: v for k, v in after["metadata"].items() if k != "managedFields"} == config[
        "metadata"
    ]
    assert after["metadata"]["managedFields"] == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "test/v1",
            "time": DAY1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:ports": {
                        'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:name": {}}
                    }
                },
            },
        }
    ]


def test_the_same_apply_again_returns_the_live_object() -> None:
    config = thing(data={"a": "1"})
    live = apply(None, config)
    # What the server adds meanwhile belongs to nobody and disturbs nobody.
    live = {**live, "spec": {"replicas": 1}, "metadata": {**live["metadata"], "uid": "u"}}
    assert apply(live, config, now=DAY2) is live


def test_a_changed_value_moves_the_time() -> None:
    live = apply(None, thing(data={"a": "1"}))
    after = apply(live, thing(data={"a": "2"}), now=DAY2)
    assert after["data"] == {"a": "2"}
    assert times(after) == {"m": DAY2}


def test_fields_no_longer_applied_are_removed() -> None:
    live = apply(None, thing(data={"a": "1", "b": "2"}, spec={"replicas": 1, "args": ["x"]}))
    after = apply(live, thing(data={"a": "1"}, spec={"replicas": 1}), now=DAY2)
    assert after["data"] == {"a": "1"}
    assert after["spec"] == {"replicas": 1}
    assert owned(after) == {"m": {"f:data": {"f:a": {}}, "f:spec": {"f:replicas": {}}}}


def test_fields_that_others_own_outlive_the_apply_that_set_them() -> None:
    live = apply(None, thing(data={"a": "1", "b": "2"}), "one")
    live = apply(live, thing(data={"b": "2"}), "two", DAY2)
    after = apply(live, thing(data={"a": "1"}), "one", DAY3)
    assert after["data"] == {"a": "1", "b": "2"}
    assert owned(after) == {"one": {"f:data": {"f:a": {}}}, "two": {"f:data": {"f:b": {}}}}


def test_items_no_longer_applied_are_removed_and_others_stay() -> None:
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    live = apply(None, thing(spec={"ports": ports}))
    more = [*ports, {"port": 82, "protocol": "UDP", "name": "c"}]
    live = update(live, changed(live, spec={"ports": more}), "other", DAY2)
    after = apply(live, thing(spec={"ports": ports[1:]}), now=DAY3)
    assert after["spec"]["ports"] == more[1:]


def test_an_item_matches_by_the_default_of_a_missing_key() -> None:
    live = apply(None, thing(spec={"ports": [{"port": 80}]}))
    live = changed(live, spec={"ports": [{"port": 80, "protocol": "TCP"}]})
    after = apply(live, thing(spec={"ports": [{"port": 80, "name": "web"}]}), now=DAY2)
    assert after["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "name": "web"}]


def test_equal_values_are_owned_together_without_conflict() -> None:
    live = apply(None, thing(data={"a": "1"}), "one")
    after = apply(live, thing(data={"a": "1"}), "two", DAY2)
    assert owned(after) == {"one": {"f:data": {"f:a": {}}}, "two": {"f:data": {"f:a": {}}}}
    assert times(after) == {"one": DAY1, "two": ""}


def test_another_value_for_an_owned_field_is_a_conflict() -> None:
    live = apply(None, thing(data={"a": "1"}), "m1")
    with pytest.raises(ApplyConflict) as conflict:
        apply(live, thing(data={"a": "2"}), "m2")
    assert conflict.value.conflicts == (('"m1"', ".data.a"),)
    assert conflict.value.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 1 conflict: conflict with "m1": .data.a',
        "reason": "Conflict",
        "details": {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "m1"',
                    "field": ".data.a",
                }
            ]
        },
        "code": 409,
    }


def test_conflicts_are_listed_by_owner() -> None:
    live = update(None, thing(data={"a": "1", "b": "1"}), "m2")
    live = apply(live, thing(spec={"replicas": 1}), "m1", DAY2)
    scaled = changed(live, status={"replicas": 1})
    live = update(live, scaled, "m3", DAY2, subresource="status", ignore=ONLY_STATUS)
    config = thing(data={"a": "2", "b": "2"}, spec={"replicas": 2}, status={"replicas": 2})
    with pytest.raises(ApplyConflict) as conflict:
        apply(live, config, "m4")
    assert conflict.value.message == (
        "Apply failed with 4 conflicts: "
        'conflicts with "m1":\n- .spec.replicas\n'
        'conflicts with "m2" using test/v1:\n- .data.a\n- .data.b\n'
        'conflicts with "m3" with subresource "status" using test/v1:\n- .status.replicas'
    )


def test_force_takes_the_fields_from_their_owners() -> None:
    live = apply(None, thing(data={"a": "1", "b": "1"}), "one")
    after = apply(live, thing(data={"a": "2"}), "two", DAY2, force=True)
    assert after["data"] == {"a": "2", "b": "1"}
    assert owned(after) == {"one": {"f:data": {"f:b": {}}}, "two": {"f:data": {"f:a": {}}}}


def test_an_update_makes_a_later_apply_of_the_old_value_a_conflict() -> None:
    live = apply(None, thing(spec={"replicas": 1}), "deployer")
    live = update(live, changed(live, spec={"replicas": 5}), "autoscaler", DAY2)
    with pytest.raises(ApplyConflict, match='conflict with "autoscaler" using test/v1'):
        apply(live, thing(spec={"replicas": 1}), "deployer", DAY3)
    after = apply(live, thing(), "deployer", DAY3)
    assert after["spec"] == {"replicas": 5}
    assert owned(after) == {"autoscaler": {"f:spec": {"f:replicas": {}}}}


def test_the_first_apply_to_an_untracked_object_leaves_the_rest_to_its_past() -> None:
    live = thing({"uid": "u"}, data={"a": "1", "b": "1"})
    after = apply(live, thing(data={"a": "1"}), now=DAY2)
    assert owned(after) == {
        "m": {"f:data": {"f:a": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:a": {}, "f:b": {}}},
    }
    operations = {e["manager"]: e["operation"] for e in after["metadata"]["managedFields"]}
    assert operations == {"m": "Apply", "before-first-apply": "Update"}
    with pytest.raises(ApplyConflict, match="before-first-apply"):
        apply(live, thing(data={"a": "2"}))


def test_the_status_is_not_owned_through_the_object() -> None:
    config = thing(spec={"replicas": 1}, status={"phase": "x"})
    assert owned(apply(None, config, ignore=NO_STATUS)) == {"m": {"f:spec": {"f:replicas": {}}}}


def test_neither_the_live_object_nor_the_config_is_changed() -> None:
    live = apply(None, thing(data={"a": "1", "b": "2"}, spec={"ports": [{"port": 1}]}))
    config = thing(data={"a": "3"}, spec={"ports": [{"port": 2}]})
    before = copy.deepcopy((live, config))
    apply(live, config, now=DAY2)
    assert (live, config) == before


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        (
            thing(foo=1),
            500,
            "failed to create typed patch object (ns/t; test/v1, Kind=Thing): "
            ".foo: field not declared in schema",
        ),
        (
            {**thing(data={"a": 1}, spec={"replicas": "1"}), "apiVersion": "v1"},
            500,
            "failed to create typed patch object (ns/t; /v1, Kind=Thing): errors:\n"
            "  .data.a: expected string, got &value.valueUnstructured{Value:1}\n"
            "  .spec.replicas: expected numeric (int or float), got string",
        ),
        (
            thing(spec={"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}),
            500,
            "failed to create typed patch object (ns/t; test/v1, Kind=Thing): "
            '.spec.ports: duplicate entries for key [port=80,protocol="TCP"]',
        ),
        (
            {"foo": 1},
            500,
            "failed to create typed patch object (/; /, Kind=): .foo: field not declared in schema",
        ),
        (thing({"managedFields": []}), 400, "metadata.managedFields must be nil"),
    ],
)
def test_a_config_that_cannot_be_applied_is_refused(
    config: Document, code: int, message: str
) -> None:
    with pytest.raises(StatusError) as refusal:
        apply(None, config)
    assert (refusal.value.code, refusal.value.message) == (code, message)
    assert refusal.value.reason == ("BadRequest" if code == 400 else "")


# kubectl's move from client-side to server-side apply.


def client_side_applied(data: dict[str, str]) -> Document:
    last = json.dumps(thing(data=data))
    new = thing({"annotations": {managed.LAST_APPLIED: last}}, data=data)
    return update(None, new, "kubectl-client-side-apply")


def test_kubectl_may_change_what_it_applied_on_the_client_side() -> None:
    live = client_side_applied({"a": "1"})
    after = apply(live, thing(data={"a": "2"}), "kubectl", DAY2)
    assert after["data"] == {"a": "2"}
    annotation = after["metadata"]["annotations"][managed.LAST_APPLIED]
    assert json.loads(annotation) == thing(data={"a": "2"})
    with pytest.raises(ApplyConflict):
        apply(live, thing(data={"a": "2"}), "somebody-else", DAY2)


def test_kubectl_still_conflicts_with_what_others_changed_since() -> None:
    live = client_side_applied({"a": "1", "b": "1"})
    live = update(live, changed(live, data={"a": "1", "b": "9"}), "editor", DAY2)
    with pytest.raises(ApplyConflict) as conflict:
        apply(live, thing(data={"a": "2", "b": "2"}), "kubectl", DAY3)
    assert conflict.value.conflicts == (('"editor" using test/v1', ".data.b"),)


def last_applied(document: Document, text: str) -> Document:
    """The object with another annotation of kubectl's."""
    return thing(
        {**document["metadata"], "annotations": {managed.LAST_APPLIED: text}},
        **{"data": document["data"]},
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        json.dumps({**thing(data={"a": "1"}), "apiVersion": "test/v2"}),
        json.dumps(thing(data={"a": "1"}, foo=1)),
    ],
    ids=["cut off", "no object", "another version", "unknown field"],
)
def test_an_annotation_that_does_not_fit_gives_kubectl_no_fields(text: str) -> None:
    live = last_applied(client_side_applied({"a": "1"}), text)
    with pytest.raises(ApplyConflict):
        apply(live, thing(data={"a": "2"}), "kubectl", DAY2)


def test_kubectl_leaves_objects_without_its_annotation_without_it() -> None:
    assert "annotations" not in apply(None, thing(data={"a": "1"}), "kubectl")["metadata"]


def test_the_annotation_holds_the_configuration_without_itself() -> None:
    live = client_side_applied({"a": "1"})
    notes = {managed.LAST_APPLIED: "old", "note": "ü"}
    after = apply(live, thing({"annotations": notes}, data={"a": "1"}), "kubectl", DAY2, force=True)
    assert after["metadata"]["annotations"] == {
        "note": "ü",
        managed.LAST_APPLIED: (
            '{"apiVersion":"test/v1","data":{"a":"1"},"kind":"Thing","metadata":'
            '{"annotations":{"note":"ü"},"name":"t","namespace":"ns"}}\n'
        ),
    }


def test_an_annotation_that_would_be_too_long_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    live = client_side_applied({"a": "1"})
    after = apply(live, thing(data={"a": "22"}), "kubectl", DAY2)
    (text,) = after["metadata"]["annotations"].values()
    size = len(managed.LAST_APPLIED) + len(text)
    monkeypatch.setattr(managed, "MAX_ANNOTATIONS", size)
    assert apply(live, thing(data={"a": "22"}), "kubectl", DAY2) == after
    monkeypatch.setattr(managed, "MAX_ANNOTATIONS", size - 1)
    assert apply(live, thing(data={"a": "22"}), "kubectl", DAY2)["metadata"]["annotations"] == {}


def test_a_conflict_names_managers_as_they_are_written() -> None:
    live = apply(None, thing(data={"a": "1"}), "jürgen")
    with pytest.raises(ApplyConflict) as conflict:
        apply(live, thing(data={"a": "2"}), "other", DAY2)
    assert 'conflict with "jürgen"' in conflict.value.message


# Laws.

values = st.sampled_from("12")
configs = st.builds(
    lambda data, ports, marks: thing(
        {"finalizers": marks} if marks else {},
        **({"data": data} if data else {}),
        **({"spec": {"ports": [{"port": p, "protocol": "TCP"} for p in ports]}} if ports else {}),
    ),
    st.dictionaries(st.sampled_from("abc"), values),
    st.lists(st.integers(1, 3), unique=True),
    st.lists(st.sampled_from("xyz"), unique=True),
)
writes = st.lists(
    st.tuples(st.sampled_from(["apply", "update"]), st.sampled_from(["p", "q", "r"]), configs),
    min_size=1,
    max_size=6,
)


@given(writes)
def test_whoever_writes_what_the_entries_stay_true(story: list[tuple[str, str, Document]]) -> None:
    live: Document | None = None
    for verb, manager, config in story:
        if verb == "apply":
            live = apply(live, config, manager, force=True)
            assert apply(live, config, manager, DAY2) is live
            expected = fields.of(THING, config)
            assert not fields.difference(expected, fields.of(THING, live))
        else:
            live = update(live, config, manager)
        present = fields.compare(THING, {}, live).added
        for entry in live["metadata"].get("managedFields", []):
            assert entry["fieldsV1"]
            assert not fields.difference(entry["fieldsV1"], present)


@given(configs, configs, configs)
def test_an_applier_leaves_nothing_behind(a: Document, b: Document, c: Document) -> None:
    alone = apply(None, c, "q", force=True)
    both = apply(apply(apply(None, a, "p"), c, "q", force=True), thing(), "p")
    assert apply(None, b, "p") == apply(apply(None, b, "p"), b, "p")
    assert fields.of(THING, both) == fields.of(THING, alone)
