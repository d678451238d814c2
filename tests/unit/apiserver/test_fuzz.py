"""Nobody can send anything that the server has no answer for, and an error changes nothing."""

import json
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge.testing.local_server import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    TABLE,
    YAML,
    LocalAnswer,
    LocalServer,
)
from kedge.testing.samples import SAMPLES

GENTLE = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

WORDS = st.sampled_from(
    [
        *("", "a", "x", "metadata", "spec", "status", "name", "labels", "containers", "items"),
        *("kind", "apiVersion", "v1", "Pod", "env", "template", "selector", "$patch", "delete"),
        *("replace", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/a"),
        *("finalizers", "ownerReferences", "managedFields", "resourceVersion", "uid", "fieldsV1"),
        *("data", "rules", "ports", "replicas", "100m", "-1", "1e9", "2030-01-01T00:00:00Z"),
        *(
            "0",
            "9" * 30,
            "é",
            "\x00",
            "../..",
            "a/b",
            "generateName",
            "matchLabels",
            "deletionTimestamp",
        ),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=10,
)
POINTERS = st.lists(WORDS, max_size=4).map(
    lambda parts: "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]),
            "path": POINTERS | VALUES,
            "from": POINTERS,
            "value": VALUES,
        },
    ),
    max_size=4,
)


def spots(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a document."""
    found = [path] if path else []
    if isinstance(document, dict):
        pairs = list(document.items())
    elif isinstance(document, list):
        pairs = list(enumerate(document))
    else:
        return found
    return found + [spot for key, inner in pairs for spot in spots(inner, (*path, key))]


def spoil(document: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


@st.composite
def spoiled(draw: st.DrawFn, document: Any) -> Any:
    """A good document with a few values replaced by bad ones."""
    copy = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        places = spots(copy)
        if not places:
            break
        spoil(copy, draw(st.sampled_from(places)), draw(VALUES))
    return copy


def check(answer: LocalAnswer) -> None:
    defect = "the server has a defect" in answer.text
    assert not defect, answer.text
    if answer.status >= 400 and answer.headers["Content-Type"] == JSON:
        status = answer.document
        assert status["kind"] == "Status"
        assert status["status"] == "Failure"
        assert status["code"] == answer.status
        assert status["message"]


async def define(server: LocalServer, kind: str) -> None:
    """Make the definition of the custom kind, if this is it."""
    if kind == "X":
        definition = SAMPLES["CustomResourceDefinition"]
        await server.post(definition.path, definition.document)
        await server.settle()


async def fixture(server: LocalServer, kind: str) -> tuple[str, Any]:
    await define(server, kind)
    sample = SAMPLES[kind]
    made = await server.post(sample.path, sample.document)
    await server.settle()
    url = f"{sample.path}/{made['metadata']['name']}"
    return url, await server.get(url)


KIND = st.sampled_from(sorted(SAMPLES))


@GENTLE
@given(KIND, st.data())
async def test_no_posted_body_breaks_the_server(kind: str, data: st.DataObject) -> None:
    async with LocalServer.running() as server:
        await define(server, kind)
        path = SAMPLES[kind].path
        body = data.draw(spoiled(SAMPLES[kind].document) | VALUES)
        before = server.store.revision
        answer = await server.call("POST", path, body)
        check(answer)
        if answer.status >= 400:
            assert server.store.revision == before
        else:
            await server.settle()
            made = answer.document
            url = f"{path}/{quote(made['metadata']['name'])}"
            check(await server.call("GET", url, accept=TABLE))
            check(await server.call("PUT", url, made))


@GENTLE
@given(KIND, st.data())
async def test_no_replacement_breaks_the_server(kind: str, data: st.DataObject) -> None:
    async with LocalServer.running() as server:
        url, before = await fixture(server, kind)
        body = data.draw(spoiled(before))
        part = data.draw(st.sampled_from(["", "", "/status"]))
        answer = await server.call("PUT", url + part, body)
        check(answer)
        if answer.status >= 400:
            assert await server.get(url) == before


@GENTLE
@given(KIND, st.data())
async def test_no_patch_breaks_the_server(kind: str, data: st.DataObject) -> None:
    async with LocalServer.running() as server:
        url, before = await fixture(server, kind)
        sort = data.draw(st.sampled_from([JSON_PATCH, MERGE, STRATEGIC, APPLY]))
        head = {"kind": before["kind"], "apiVersion": before["apiVersion"]}
        if sort == JSON_PATCH:
            body: Any = data.draw(OPERATIONS)
        else:
            base = {key: value for key, value in before.items() if key != "metadata"}
            body = data.draw(spoiled(base) | VALUES)
        if sort == APPLY and isinstance(body, dict):
            body = body | head
        part = data.draw(st.sampled_from(["", "", "/status"]))
        query = "?fieldManager=me" if sort == APPLY else ""
        answer = await server.call("PATCH", url + part + query, body, content_type=sort)
        check(answer)
        if answer.status >= 400:
            assert await server.get(url) == before


PARAMETERS = st.dictionaries(
    st.sampled_from(
        [
            *("watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "pretty"),
            *("labelSelector", "fieldSelector", "timeoutSeconds", "dryRun", "fieldManager"),
            *("fieldValidation", "force", "propagationPolicy", "gracePeriodSeconds", "timeout"),
            *("allowWatchBookmarks", "sendInitialEvents", "includeObject", "orphanDependents"),
        ]
    ),
    WORDS
    | st.sampled_from(
        [
            *("true", "false", "1", "All", "Exact", "NotOlderThan", "Strict", "Warn", "Ignore"),
            *("metadata.name=x", "a in (b,c)", "a=b,!c", "Orphan", "Object", "None", "eyJydiI6MX0"),
            *("eyJydiI6MSwic3RhcnQiOiJhIn0", "a=b=c", "a in (", "spec.nodeName!=a", "a>1"),
        ]
    ),
    max_size=5,
)


@GENTLE
@given(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
    KIND,
    st.sampled_from(["", "/x", "/x/status", "/x/scale", "/x/binding", "/x/eviction", "/x/log"]),
    PARAMETERS,
    st.sampled_from(["", TABLE, YAML, "text/html", "*/*;q=0.1", "application/json;as=X"]),
    st.none() | VALUES,
)
async def test_no_query_breaks_the_server(
    method: str, kind: str, suffix: str, query: dict[str, str], accept: str, body: Any
) -> None:
    async with LocalServer.running() as server:
        url, before = await fixture(server, kind)
        text = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        target = f"{SAMPLES[kind].path}{suffix}?{text}"
        if method == "GET" and query.get("watch", "0") not in ("0", "false") and not suffix:
            check_watch = await _watch(server, target, accept)
            check(check_watch)
            return
        sort = MERGE if method == "PATCH" else JSON
        asked = server.start(_ask(server, method, target, body, accept, sort, before, url))
        await server.clock.advance(5)
        await asked


async def _ask(
    server: LocalServer,
    method: str,
    target: str,
    body: Any,
    accept: str,
    sort: str,
    before: Any,
    url: str,
) -> None:
    answer = await server.call(method, target, body, accept=accept, content_type=sort)
    check(answer)
    if answer.status >= 400:
        assert await server.get(url) == before


async def _watch(server: LocalServer, target: str, accept: str) -> LocalAnswer:
    try:
        watching = await server.watch(target, accept=accept)
    except AssertionError:
        return await server.call("GET", target, accept=accept)
    await server.clock.advance(5)
    await watching.events()
    return LocalAnswer(200, {"Content-Type": JSON}, [], b"{}")
