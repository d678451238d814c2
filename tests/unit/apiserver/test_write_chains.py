"""Writers of one object build on each other's writes before these are committed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    LocalAnswer,
    LocalServer,
)
from kedge.testing.queueing_store import QueueingStore

MAPS = "/api/v1/namespaces/default/configmaps"
MAP = f"{MAPS}/m"
PODS = "/api/v1/namespaces/default/pods"
POD = f"{PODS}/p"
SERVICES = "/api/v1/namespaces/default/services"


@asynccontextmanager
async def queueing(*admission: str) -> AsyncIterator[tuple[LocalServer, QueueingStore]]:
    clock = FakeClock()
    store = QueueingStore(clock)
    names = admission or ("NamespaceLifecycle",)
    async with LocalServer.running(store, clock, admission=names) as server:
        await server.post(MAPS, {"metadata": {"name": "m"}, "data": {"a": "0"}})
        containers = [{"name": "c", "image": "busybox:1"}]
        await server.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": containers}})
        yield server, store


async def together(
    server: LocalServer, store: QueueingStore, *calls: Awaitable[LocalAnswer], fails: int = -1
) -> list[LocalAnswer]:
    """Send the requests at once, and commit whenever all of them wait. Write `fails` of the first
    commit fails."""
    sent = [asyncio.ensure_future(call) for call in calls]
    await server.settle()
    await store.commit([fails])
    while not all(each.done() for each in sent):
        await server.settle()
        await store.commit()
    return [each.result() for each in sent]


def merge(server: LocalServer, url: str, body: object, **options: Any) -> Awaitable[LocalAnswer]:
    return server.call("PATCH", url, body, content_type=MERGE, **options)


def labels(number: int) -> dict[str, Any]:
    return {"metadata": {"labels": {f"n{number}": "yes"}}}


async def test_patches_that_wait_for_each_other_share_a_commit() -> None:
    async with queueing() as (server, store):
        watch = await server.watch(f"{PODS}?watch=1&resourceVersion={store.revision}")
        answers = await together(
            server, store, *(merge(server, POD, labels(number)) for number in range(8))
        )
        assert [each.status for each in answers] == [200] * 8
        assert store.groups[0] == 8
        shown = [each.document["metadata"] for each in answers]
        assert [len(meta["labels"]) for meta in shown] == [*range(1, 9)]
        versions = [int(meta["resourceVersion"]) for meta in shown]
        assert versions == [*range(versions[0], versions[0] + 8)]
        events = [each["object"] for each in await watch.events()]
        assert events == [each.document for each in answers]
        assert await server.get(POD) == answers[-1].document


async def test_the_status_and_the_rest_of_an_object_are_written_in_one_commit() -> None:
    async with queueing() as (server, store):
        status = {"status": {"phase": "Running"}}
        one, other = await together(
            server,
            store,
            server.call("PATCH", f"{POD}/status", status, content_type=STRATEGIC),
            merge(server, POD, labels(1)),
        )
        assert store.groups[0] == 2
        assert one.document["status"]["phase"] == other.document["status"]["phase"] == "Running"
        assert "labels" not in one.document["metadata"]


async def test_an_error_is_found_again_from_what_is_stored() -> None:
    async with queueing() as (server, store):
        bad = {"metadata": {"labels": {"n": "no label!"}}}
        good, refused = await together(
            server, store, merge(server, POD, labels(1)), merge(server, POD, bad)
        )
        assert (good.status, refused.status) == (200, 422)
        assert store.queued == []


async def test_an_error_quotes_the_object_with_its_version() -> None:
    async with queueing() as (server, store):
        good, refused = await together(
            server, store, merge(server, MAP, {"data": {"a": "1"}}), merge(server, MAP, {"data": 5})
        )
        version = good.document["metadata"]["resourceVersion"]
        assert refused.status == 422
        assert f'resourceVersion\\":\\"{version}\\"' in refused.message


async def test_no_error_is_due_to_a_write_that_fails() -> None:
    async with queueing() as (server, store):
        failed, good = await together(
            server,
            store,
            merge(server, MAP, {"immutable": True}),
            merge(server, MAP, {"data": {"a": "1"}}),
            fails=0,
        )
        assert failed.status == 500
        assert good.document["data"] == {"a": "1"}


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize("version", ["stored", "1", "pending"])
async def test_a_patch_with_a_version_waits_for_the_write_before(
    content_type: str, version: str
) -> None:
    async with queueing() as (server, store):
        stored = (await server.get(POD))["metadata"]["resourceVersion"]
        meta = {"resourceVersion": stored if version == "stored" else version, **labels(2)}
        good, refused = await together(
            server,
            store,
            merge(server, POD, labels(1)),
            server.call("PATCH", POD, {"metadata": meta}, content_type=content_type),
        )
        assert good.status == 200
        assert refused.status == (500 if version == "pending" else 409)
        assert list((await server.get(POD))["metadata"]["labels"]) == ["n1"]


async def test_a_put_conflicts_with_the_write_before_if_it_has_a_version() -> None:
    async with queueing() as (server, store):
        live = await server.get(MAP)
        unversioned = {"metadata": {"name": "m"}, "data": {"b": "2"}}
        answers = await together(
            server,
            store,
            merge(server, MAP, {"data": {"a": "1"}}),
            server.call("PUT", MAP, live | {"data": {"a": "2"}}),
            server.call("PUT", MAP, unversioned),
        )
        assert [each.status for each in answers] == [200, 409, 200]
        assert (await server.get(MAP))["data"] == {"b": "2"}


async def test_a_json_patch_sees_the_version_of_the_write_before() -> None:
    async with queueing() as (server, store):
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": "0"}
        copy = {"op": "copy", "from": "/metadata/resourceVersion", "path": "/data/version"}
        one, refused, copied = await together(
            server,
            store,
            merge(server, MAP, {"data": {"a": "1"}}),
            server.call("PATCH", MAP, [test], content_type=JSON_PATCH),
            server.call("PATCH", MAP, [copy], content_type=JSON_PATCH),
        )
        assert refused.status == 422
        version = one.document["metadata"]["resourceVersion"]
        assert copied.document["data"] == {"a": "1", "version": version}


async def test_a_patch_that_changes_nothing_answers_after_the_commit_before() -> None:
    async with queueing() as (server, store):
        one = asyncio.ensure_future(merge(server, MAP, {"data": {"a": "1"}}))
        same = asyncio.ensure_future(merge(server, MAP, {"data": {"a": "1"}}))
        await server.settle()
        assert not same.done()
        await store.commit()
        assert (await same).document == (await one).document
        assert len(store.groups) == 1


async def test_a_dry_run_waits_for_the_write_before() -> None:
    async with queueing() as (server, store):
        dry = merge(server, f"{MAP}?dryRun=All", {"data": {"b": "2"}})
        one, other = await together(server, store, merge(server, MAP, {"data": {"a": "1"}}), dry)
        assert other.document["data"] == {"a": "1", "b": "2"}
        assert (
            other.document["metadata"]["resourceVersion"]
            == (one.document["metadata"]["resourceVersion"])
        )


@pytest.mark.parametrize("fails", [0, 1, 3, 7])
async def test_writes_on_a_failed_one_begin_again_from_what_is_stored(fails: int) -> None:
    async with queueing() as (server, store):
        answers = await together(
            server,
            store,
            *(merge(server, MAP, {"data": {f"n{n}": "yes", "a": str(n)}}) for n in range(8)),
            fails=fails,
        )
        assert [each.status for each in answers] == [500 if n == fails else 200 for n in range(8)]
        expected = {f"n{number}" for number in range(8) if number != fails}
        assert set((await server.get(MAP))["data"]) == expected | {"a"}


async def test_a_request_that_ends_takes_its_write_along_and_no_other() -> None:
    async with queueing() as (server, store):
        gone, kept = (
            asyncio.ensure_future(merge(server, MAP, {"data": {name: "1"}})) for name in "bc"
        )
        await server.settle()
        assert len(store.queued) == 2
        gone.cancel()
        await asyncio.wait([gone])
        while not kept.done():
            await store.commit()
            await server.settle()
        assert (await kept).document["data"] == {"a": "0", "c": "1"}


async def test_a_deletion_waits_for_queued_writes() -> None:
    async with queueing() as (server, store):
        one, gone, late = await together(
            server,
            store,
            merge(server, MAP, {"data": {"a": "1"}}),
            server.call("DELETE", MAP),
            merge(server, MAP, {"data": {"a": "2"}}),
        )
        assert [each.status for each in (one, gone, late)] == [200, 200, 404]


async def test_the_last_finalizer_goes_after_the_writes_before() -> None:
    async with queueing() as (server, store):
        held = {"metadata": {"finalizers": ["example.com/x"]}}
        await together(server, store, merge(server, MAP, held))
        await server.delete(MAP)
        answers = await together(
            server,
            store,
            merge(server, MAP, {"data": {"a": "1"}}),
            merge(server, MAP, {"metadata": {"finalizers": None}}),
        )
        assert [each.status for each in answers] == [200, 200]
        assert (await server.call("GET", MAP)).status == 404


async def test_a_webhook_never_sees_an_unknown_version() -> None:
    async with queueing("ValidatingAdmissionWebhook") as (server, store):
        await server.post(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            {"metadata": {"name": "w"}},
        )
        answers = asyncio.gather(*(merge(server, MAP, {"data": {n: "1"}}) for n in "bcd"))
        await server.settle()
        assert [each.status for each in await answers] == [200] * 3
        assert store.groups == []


async def test_addresses_of_services_are_chosen_one_write_after_the_other() -> None:
    async with queueing() as (server, store):
        spec = {"type": "ClusterIP", "ports": [{"port": 80}]}
        await server.post(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
        answers = await together(
            server,
            store,
            merge(server, f"{SERVICES}/s", labels(1)),
            merge(server, f"{SERVICES}/s", {"spec": {"type": "NodePort"}}),
            merge(server, f"{SERVICES}/s", labels(2)),
        )
        assert [each.status for each in answers] == [200] * 3
        ports = [each.document["spec"]["ports"][0].get("nodePort") for each in answers]
        assert ports[0] is None
        assert ports[1] == ports[2] is not None


async def test_warnings_of_an_attempt_are_not_repeated_by_the_next() -> None:
    async with queueing() as (server, store):
        unknown = {"data": {"a": "1"}, "nonsense": 1}
        answers = await together(
            server, store, *(merge(server, MAP, unknown) for _ in range(3)), fails=0
        )
        assert [each.status for each in answers] == [500, 200, 200]
        assert [len(each.warnings) for each in answers] == [1, 1, 1]


# The law: requests that build on each other have the answers that they have one after the other.

_values = st.sampled_from(["0", "1", "2", None])
_metas = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(st.sampled_from("xy"), _values, max_size=2),
        "resourceVersion": st.sampled_from(["", "0", "1", "x", None]),
        "finalizers": st.sampled_from([["example.com/f"], [], None]),
    },
)
_bodies = st.fixed_dictionaries(
    {},
    optional={
        "metadata": _metas,
        "data": st.dictionaries(st.sampled_from("ab"), _values, max_size=2),
        "immutable": st.sampled_from([True, False, None]),
        "unknown": st.just(1),
    },
)
_identity = {"apiVersion": "v1", "kind": "ConfigMap"}


def _named(body: dict[str, Any]) -> dict[str, Any]:
    return {**_identity, **body, "metadata": {**body.get("metadata", {}), "name": "m"}}


_requests = st.one_of(
    st.tuples(st.just("PATCH"), st.just(""), st.sampled_from([MERGE, STRATEGIC]), _bodies),
    st.tuples(
        st.just("PATCH"),
        st.sampled_from(["?fieldManager=one", "?fieldManager=two", "?fieldManager=one&force=true"]),
        st.just(APPLY),
        _bodies.map(_named),
    ),
    st.tuples(st.just("PUT"), st.just(""), st.just(JSON), _bodies.map(_named)),
)
Call = tuple[str, str, str, Any]
_WITH_DATA: dict[str, Any] = {"metadata": {"name": "m"}, "data": {"a": "0"}}


@settings(max_examples=60, deadline=None)
@given(st.lists(_requests, min_size=2, max_size=6))
async def test_requests_at_once_have_the_answers_of_requests_in_turn(calls: list[Call]) -> None:
    at_once = await _answers(MAPS, _WITH_DATA, calls, is_at_once=True)
    in_turn = await _answers(MAPS, _WITH_DATA, calls, is_at_once=False)
    assert at_once == in_turn


# The same of a kind with a generation, a status and a scale, whose last request may be a deletion.

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "m"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "busybox:1"}]},
        },
    },
}
_owner = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "1"}
_changes = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "annotations": st.dictionaries(st.sampled_from("xy"), _values, max_size=2),
                "ownerReferences": st.sampled_from([[_owner], None]),
                "generation": st.just(7),
                "managedFields": st.sampled_from([[{}], None]),
                "resourceVersion": st.sampled_from(["0", "1", None]),
            },
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.sampled_from([0, 3, -1]),
                "minReadySeconds": st.sampled_from([0, 3]),
            },
        ),
        "status": st.sampled_from(
            [{"replicas": 2}, {"conditions": [{"type": "A", "status": "True"}]}]
        ),
    },
)
_scales = st.sampled_from([0, 1, 4]).map(lambda number: {"spec": {"replicas": number}})
_operations = st.sampled_from(
    [
        {"op": "test", "path": "/metadata/generation", "value": 1},
        {"op": "copy", "from": "/metadata/name", "path": "/metadata/annotations"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
    ]
)
_merging = st.sampled_from([MERGE, STRATEGIC])
_writes_of_deployments = st.one_of(
    st.tuples(
        st.just("PATCH"), st.sampled_from(["", "/status", "?dryRun=All"]), _merging, _changes
    ),
    st.tuples(st.just("PATCH"), st.just("/scale"), st.just(MERGE), _scales),
    st.tuples(
        st.just("PATCH"),
        st.just(""),
        st.just(JSON_PATCH),
        st.lists(_operations, min_size=1, max_size=2),
    ),
)
_no_deletion: Sequence[Call] = ()
_deletion: Sequence[Call] = (("DELETE", "", JSON, {}),)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(_writes_of_deployments, min_size=2, max_size=6),
    st.sampled_from([_no_deletion, _deletion]),
)
async def test_all_sorts_of_writes_at_once_have_the_answers_of_writes_in_turn(
    writes: list[Call], last: Sequence[Call]
) -> None:
    calls = [*writes, *last]
    at_once = await _answers(DEPLOYMENTS, _DEPLOYMENT, calls, is_at_once=True)
    in_turn = await _answers(DEPLOYMENTS, _DEPLOYMENT, calls, is_at_once=False)
    assert at_once == in_turn


def annotating(server: LocalServer, number: int, sort: str) -> Awaitable[LocalAnswer]:
    """Add an annotation by a request of one sort."""
    url, name = f"{DEPLOYMENTS}/m", f"n{number}"
    patch: dict[str, Any] = {"metadata": {"annotations": {name: "yes"}}}
    if sort == JSON_PATCH:
        add = {"op": "add", "path": f"/metadata/annotations/{name}", "value": "yes"}
        return server.call("PATCH", url, [add], content_type=sort)
    if sort == APPLY:
        identity = {"apiVersion": "apps/v1", "kind": "Deployment"}
        applied = {**identity, "metadata": {**patch["metadata"], "name": "m"}}
        manager = f"?fieldManager={name}"
        return server.call("PATCH", url + manager, applied, content_type=sort)
    if sort == "status":
        return server.call("PATCH", f"{url}/status", patch, content_type=MERGE)
    return server.call("PATCH", url, patch, content_type=sort)


_sorts = st.sampled_from([MERGE, STRATEGIC, JSON_PATCH, APPLY, "status"])


@settings(max_examples=30, deadline=None)
@given(st.lists(_sorts, min_size=2, max_size=8), st.integers(0, 7))
async def test_of_all_sorts_of_writes_the_one_that_fails_leaves_nothing(
    sorts: list[str], fails: int
) -> None:
    clock = FakeClock()
    store = QueueingStore(clock)
    async with LocalServer.running(store, clock) as server:
        first = {**_DEPLOYMENT, "metadata": {"name": "m", "annotations": {"first": "yes"}}}
        await server.post(DEPLOYMENTS, first)
        calls = [annotating(server, number, sort) for number, sort in enumerate(sorts)]
        answers = await together(server, store, *calls, fails=fails)
        stored = [number for number, each in enumerate(answers) if each.status == 200]
        assert len(stored) >= len(sorts) - 1
        meta = (await server.get(f"{DEPLOYMENTS}/m"))["metadata"]
        assert set(meta["annotations"]) == {"first", *(f"n{number}" for number in stored)}
        # A write to the status does not count.
        assert meta["generation"] == 1 + sum(sorts[number] != "status" for number in stored)
        appliers = {f"n{number}" for number in stored if sorts[number] == APPLY}
        assert {each["manager"] for each in meta["managedFields"]} - {"test"} == appliers


async def _answers(
    place: str,
    first: dict[str, Any],
    calls: Sequence[Call],
    *,
    is_at_once: bool,
) -> list[Any]:
    clock = FakeClock()
    store = QueueingStore(clock) if is_at_once else MemoryStore(clock)
    async with LocalServer.running(store, clock) as server:
        made = await server.post(place, first)
        version = int(made["metadata"]["resourceVersion"])
        sent = [
            server.call(method, f"{place}/m{rest}", body, content_type=content_type)
            for method, rest, content_type, body in calls
        ]
        if isinstance(store, QueueingStore):
            answers = await together(server, store, *sent)
        else:
            answers = [await each for each in sent]
        answers.append(await server.call("GET", f"{place}/m"))
        uid = made["metadata"]["uid"]
        return [
            (each.status, each.warnings, _comparable(each.document, uid, version))
            for each in answers
        ]


def _comparable(value: Any, uid: str, version: int) -> Any:
    """Return a document with versions counted from the first one."""
    if isinstance(value, dict):
        return {
            name: int(inner) - version
            if name == "resourceVersion"
            else _comparable(inner, uid, version)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_comparable(each, uid, version) for each in value]
    return value.replace(uid, "uid") if isinstance(value, str) else value
