"""Get and list, seen from outside."""

import base64
import threading
from typing import Any

import pytest
import yaml

from kedge.apiserver.long_work import LONG
from kedge.machinery import yaml_text
from kedge.testing.local_server import TABLE, TOKEN, YAML, LocalServer, RecordingSink
from kedge.web.message import HttpRequest, Response

MAPS = "/api/v1/namespaces/default/configmaps"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def make(server: LocalServer, *names: str, **labels: str) -> list[Any]:
    return [
        await server.post(MAPS, {"metadata": {"name": name, "labels": labels}}) for name in names
    ]


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def version(document: Any) -> str:
    return str(document["metadata"]["resourceVersion"])


async def test_an_empty_list_is_still_a_list(server: LocalServer) -> None:
    listed = await server.get(MAPS)
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed["items"] == []
    elsewhere = await server.call("GET", "/api/v1/namespaces/nowhere/configmaps")
    assert (elsewhere.status, elsewhere.document["items"]) == (200, [])


async def test_a_list_is_in_the_order_of_names_and_stays_in_its_namespace(
    server: LocalServer,
) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": "default0"}})
    await server.post("/api/v1/namespaces/default0/configmaps", {"metadata": {"name": "x"}})
    await make(server, "b", "a", "c")
    assert names(await server.get(MAPS)) == ["a", "b", "c"]
    assert names(await server.get(MAPS + "/")) == ["a", "b", "c"]
    assert names(await server.get("/api/v1/configmaps")) == ["a", "b", "c", "x"]


async def test_content_type_is_exactly_json(server: LocalServer) -> None:
    for path in (MAPS, f"{MAPS}/none"):
        assert (await server.call("GET", path)).headers["Content-Type"] == "application/json"


async def test_a_missing_object_is_described(server: LocalServer) -> None:
    answer = await server.call("GET", "/apis/apps/v1/namespaces/default/deployments/x")
    assert answer.document == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'deployments.apps "x" not found',
        "reason": "NotFound",
        "details": {"name": "x", "group": "apps", "kind": "deployments"},
        "code": 404,
    }


async def test_a_get_sees_at_least_the_version_asked_for(server: LocalServer) -> None:
    [made] = await make(server, "a")
    for asked in ("", "0", version(made)):
        assert await server.get(f"{MAPS}/a?resourceVersion={asked}") == made
    answer = await server.call("GET", f"{MAPS}/a?resourceVersion=100000")
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.headers["Retry-After"] == "1"
    assert answer.document["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("abc", "invalid syntax"),
        ("-1", "invalid syntax"),
        ("%2B1", "invalid syntax"),
        ("9" * 23, "value out of range"),
        ("18446744073709551616", "value out of range"),
        ("9" * 5_000, "value out of range"),
    ],
)
async def test_a_version_that_is_no_number_is_refused_as_upstream_does(
    server: LocalServer, version: str, why: str
) -> None:
    """As kube-apiserver 1.36.4 answered: 400 to a list, 500 without a reason to get and watch."""
    await make(server, "a")
    text = version.replace("%2B", "+")
    told = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}'
    answer = await server.call("GET", f"{MAPS}?resourceVersion={version}")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == f"invalid resource version: {told}"
    for url in (f"{MAPS}/a?", f"{MAPS}?watch=true&timeoutSeconds=1&"):
        answer = await server.call("GET", f"{url}resourceVersion={version}")
        assert (answer.status, answer.reason, answer.message) == (500, "", told)


@pytest.mark.parametrize("version", ["9223372036854775807", "18446744073709551615"])
async def test_a_version_of_the_far_future_is_waited_for(server: LocalServer, version: str) -> None:
    await make(server, "a")
    told = f"Timeout: Too large resource version: {version}, current: {server.store.revision}"
    answer = await server.call("GET", f"{MAPS}/a?resourceVersion={version}")
    assert (answer.status, answer.message) == (504, told)
    watching = await server.watch(f"{MAPS}?watch=true&resourceVersion={version}")
    await make(server, "b")
    assert await watching.seen() == []
    assert await server.get(f"{MAPS}/a?resourceVersion=00000000000000000000000001")


# Selectors.


async def test_labels_select(server: LocalServer) -> None:
    await make(server, "a", app="web", tier="1")
    await make(server, "b", app="db")
    await make(server, "c")
    cases = {
        "app": ["a", "b"],
        "!app": ["c"],
        "app=web": ["a"],
        "app!=web": ["b", "c"],
        "app in (web,db),tier": ["a"],
        "tier<2": ["a"],
        "": ["a", "b", "c"],
    }
    for selector, found in cases.items():
        listed = await server.get(f"{MAPS}?labelSelector={selector}")
        assert names(listed) == found, selector
    answer = await server.call("GET", f"{MAPS}?labelSelector=a=b=c")
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_fields_select(server: LocalServer) -> None:
    await make(server, "a", "b")
    for selector in ("metadata.name=a", "metadata.name==a,", "metadata.name!=b"):
        assert names(await server.get(f"{MAPS}?fieldSelector={selector}")) == ["a"]
    wide = "/api/v1/configmaps?fieldSelector=metadata.name=a,metadata.namespace=default"
    assert names(await server.get(wide)) == ["a"]
    answer = await server.call("GET", f"{MAPS}?fieldSelector=spec.foo=x")
    assert answer.status == 400
    assert answer.message == (
        '"spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    answer = await server.call("GET", "/api/v1/pods?fieldSelector=spec.foo=x")
    assert answer.status == 400
    assert "field label not supported: spec.foo" in answer.message


# Which state.


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["a", "b", "c"]),
        ("resourceVersion=0", ["a", "b", "c"]),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", ["a", "b", "c"]),
        ("resourceVersion={rv}", ["a", "b", "c"]),
        ("resourceVersion={rv}&resourceVersionMatch=NotOlderThan", ["a", "b", "c"]),
        ("resourceVersion={rv}&resourceVersionMatch=NotOlderThan&limit=9", ["a", "b", "c"]),
        ("resourceVersion={rv}&limit=9", ["a", "b"]),
        ("resourceVersion={rv}&resourceVersionMatch=Exact", ["a", "b"]),
        ("resourceVersion={rv}&resourceVersionMatch=Exact&limit=1", ["a"]),
    ],
)
async def test_the_version_decides_which_state_is_listed(
    server: LocalServer, query: str, found: list[str]
) -> None:
    _, second = await make(server, "a", "b")
    await make(server, "c")
    listed = await server.get(f"{MAPS}?{query.format(rv=version(second))}")
    assert names(listed) == found
    if "Exact" in query or (query.endswith("limit=9") and "NotOlder" not in query):
        assert version(listed) == version(second)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=1&resourceVersionMatch=Newish", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("continue=abc&resourceVersion=1&resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=true", 422),
        ("continue=abc&resourceVersion=1", 400),
        ("continue=abc", 400),
        ("continue=é", 400),
        ("continue=eyJydiI6LTIsInN0YXJ0IjoiYSJ9", 400),
        ("resourceVersion=new", 400),
        ("limit=some", 400),
    ],
)
async def test_contradictory_parameters_are_refused(
    server: LocalServer, query: str, code: int
) -> None:
    answer = await server.call("GET", f"{MAPS}?{query}")
    assert answer.status == code
    if code == 422:
        assert answer.message.startswith('ListOptions.meta.k8s.io "" is invalid')


async def test_a_future_version_is_waited_for_and_then_given_up(server: LocalServer) -> None:
    start = server.clock.monotonic()
    asked = server.start(_list_future(server))
    await server.clock.advance(2)
    assert not asked.done()
    await server.clock.advance(2)
    await asked
    assert 2 < server.clock.monotonic() - start <= 4


async def _list_future(server: LocalServer) -> None:
    answer = await server.call("GET", f"{MAPS}?resourceVersion=100000")
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.headers["Retry-After"] == "1"


# Pages.


async def test_pages_show_one_state(server: LocalServer) -> None:
    await make(server, "a", "b", "c", "d", "e")
    first = await server.get(f"{MAPS}?limit=2")
    assert names(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    await server.delete(f"{MAPS}/c")
    await make(server, "bb")
    second = await server.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
    assert names(second) == ["c", "d"]
    assert second["metadata"]["remainingItemCount"] == 1
    third = await server.get(f"{MAPS}?limit=2&continue={second['metadata']['continue']}")
    assert names(third) == ["e"]
    assert "continue" not in third["metadata"]
    assert version(first) == version(second) == version(third)


async def test_selected_pages_do_not_count_the_rest(server: LocalServer) -> None:
    await make(server, "a", "c", app="web")
    await make(server, "b", "d")
    first = await server.get(f"{MAPS}?limit=1&labelSelector=app")
    assert names(first) == ["a"]
    assert "remainingItemCount" not in first["metadata"]
    token = first["metadata"]["continue"]
    rest = await server.get(f"{MAPS}?limit=5&labelSelector=app&continue={token}")
    assert names(rest) == ["c"]


async def test_a_limit_that_is_just_enough_leaves_nothing_to_continue(server: LocalServer) -> None:
    await make(server, "a", "b")
    listed = await server.get(f"{MAPS}?limit=2")
    assert names(listed) == ["a", "b"]
    assert "continue" not in listed["metadata"]
    assert "remainingItemCount" not in listed["metadata"]


async def test_a_page_with_the_one_object_of_a_name_is_the_last(server: LocalServer) -> None:
    await make(server, "a", "b")
    listed = await server.get(f"{MAPS}?limit=1&fieldSelector=metadata.name=a")
    assert names(listed) == ["a"]
    assert "continue" not in listed["metadata"]


async def test_an_expired_page_comes_with_a_token_that_goes_on_now(server: LocalServer) -> None:
    await make(server, "a", "b", "c")
    first = await server.get(f"{MAPS}?limit=1")
    await make(server, "d")
    await server.store.compact(server.store.revision)
    expired = await server.call("GET", f"{MAPS}?limit=9&continue={first['metadata']['continue']}")
    assert (expired.status, expired.reason) == (410, "Expired")
    fresh = expired.document["metadata"]["continue"]
    rest = await server.get(f"{MAPS}?limit=9&continue={fresh}")
    assert names(rest) == ["b", "c", "d"]
    assert int(version(rest)) >= server.store.revision


async def test_a_compacted_state_is_gone(server: LocalServer) -> None:
    [made] = await make(server, "a")
    await make(server, "b")
    await server.store.compact(server.store.revision)
    answer = await server.call(
        "GET", f"{MAPS}?resourceVersion={version(made)}&resourceVersionMatch=Exact"
    )
    assert (answer.status, answer.reason) == (410, "Expired")


async def test_a_token_from_a_store_that_got_further_is_expired(server: LocalServer) -> None:
    await make(server, "a")
    token = base64.urlsafe_b64encode(b'{"rv":99999999999999999999,"start":"0"}').decode()
    answer = await server.call("GET", f"{MAPS}?limit=9&continue={token}")
    assert (answer.status, answer.reason) == (410, "Expired")
    fresh = answer.document["metadata"]["continue"]
    assert names(await server.get(f"{MAPS}?continue={fresh}")) == ["a"]


# Forms.


async def test_yaml_is_served_and_taken(server: LocalServer) -> None:
    posted = b"metadata:\n  name: why\ndata:\n  when: 2001-01-01\n"
    made = await server.post(MAPS, posted, content_type=YAML)
    assert made["data"] == {"when": "2001-01-01"}
    answer = await server.call("GET", f"{MAPS}/why", accept=YAML)
    assert answer.headers["Content-Type"] == "application/yaml"
    assert yaml.safe_load(answer.text)["metadata"]["name"] == "why"
    listed = await server.call("GET", MAPS, accept=YAML)
    assert yaml.safe_load(listed.text)["kind"] == "ConfigMapList"


async def test_the_first_form_that_can_be_served_is_taken(server: LocalServer) -> None:
    await make(server, "a")
    url = f"{MAPS}/a"
    for accept in ("", "*/*", "application/vnd.kubernetes.protobuf, */*"):
        assert (await server.get(url, accept=accept))["kind"] == "ConfigMap"
    table = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    assert (await server.get(url, accept=table))["kind"] == "Table"
    shuffled = "application/json;g=meta.k8s.io;v=v1;as=Table"
    assert (await server.get(url, accept=shuffled))["kind"] == "Table"


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v9;g=meta.k8s.io",
        "application/*",
    ],
)
async def test_nothing_acceptable_is_406(server: LocalServer, accept: str) -> None:
    await make(server, "a")
    answer = await server.call("GET", f"{MAPS}/a", accept=accept)
    assert (answer.status, answer.reason) == (406, "NotAcceptable")
    assert "application/json" in answer.message


async def test_the_metadata_of_a_list_is_no_form_of_one_object(server: LocalServer) -> None:
    await make(server, "a")
    answer = await server.call("GET", f"{MAPS}/a", accept=PARTIAL_LIST)
    assert (answer.status, answer.message) == (
        406,
        "you requested PartialObjectMetadataList, but the requested object is not a list "
        "(*core.ConfigMap)",
    )


async def test_what_cannot_be_answered_is_not_done(server: LocalServer) -> None:
    [made] = await make(server, "a")
    for method, url, body in (
        ("POST", MAPS, {"metadata": {"name": "b"}}),
        ("PUT", f"{MAPS}/a", {"data": {"x": "y"}}),
        ("DELETE", f"{MAPS}/a", None),
        ("DELETE", MAPS, None),
    ):
        answer = await server.call(method, url, body, accept="text/html")
        assert answer.status == 406
    assert [made | each for each in (await server.get(MAPS))["items"]] == [made]


async def test_a_table_has_columns_and_rows(server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}})
    await server.clock.advance(90)
    table = await server.get(f"{MAPS}?limit=1", accept=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["columnDefinitions"][0]["format"] == "name"
    [row] = table["rows"]
    assert row["cells"] == ["a", 2, "90s"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"
    assert int(version(table)) == server.store.revision


async def test_a_row_carries_as_much_of_the_object_as_asked(server: LocalServer) -> None:
    [made] = await make(server, "a")
    for include, found in (("Object", made), ("None", None)):
        table = await server.get(f"{MAPS}/a?includeObject={include}", accept=TABLE)
        assert table["rows"][0].get("object") == found
    answer = await server.call("GET", f"{MAPS}?includeObject=Some", accept=TABLE)
    assert answer.status == 400


async def test_errors_stay_statuses_for_those_who_want_tables(server: LocalServer) -> None:
    answer = await server.call("GET", f"{MAPS}/none", accept=TABLE)
    assert (answer.status, answer.document["kind"]) == (404, "Status")


async def test_metadata_alone_can_be_had(server: LocalServer) -> None:
    [made] = await make(server, "a")
    one = await server.get(f"{MAPS}/a", accept=PARTIAL)
    assert one == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }
    many = await server.get(MAPS, accept=PARTIAL_LIST)
    assert many["kind"] == "PartialObjectMetadataList"
    assert many["items"] == [one]


async def test_pretty_answers_are_indented(server: LocalServer) -> None:
    await make(server, "a")
    assert (await server.call("GET", f"{MAPS}/a?pretty=true")).text.startswith('{\n  "kind"')
    assert (await server.call("GET", f"{MAPS}?pretty")).text.startswith('{\n  "kind"')
    assert (await server.call("GET", f"{MAPS}?pretty=false")).text.startswith('{"kind"')


@pytest.mark.parametrize("path", [MAPS, f"{MAPS}/none", "/api", "/apis", "/apis/apps/v1"])
async def test_those_who_read_along_get_everything_indented(server: LocalServer, path: str) -> None:
    reader, program = {"user-agent": "curl/8.0"}, {"user-agent": "kubectl/v1.36"}
    assert (await server.call("GET", path, headers=reader)).text.startswith('{\n  "kind"')
    assert (await server.call("GET", path, headers=program)).text.startswith('{"kind"')
    plain = f"{path}?pretty=false"
    assert (await server.call("GET", plain, headers=reader)).text.startswith('{"kind"')


async def test_yaml_of_large_objects_is_made_by_a_thread(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"metadata": {"name": "large"}, "data": {"k": "v" * LONG}}
    await server.post(MAPS, {"metadata": {"name": "small"}})
    threads: set[int] = set()
    write = yaml_text.write

    def noted(document: Any) -> str:
        threads.add(threading.get_ident())
        return write(document)

    monkeypatch.setattr(yaml_text, "write", noted)
    assert (await server.call("GET", MAPS, accept=YAML)).status == 200
    assert threads == {threading.get_ident()}
    await server.post(MAPS, large)
    threads.clear()
    request = HttpRequest("GET", MAPS, headers={"accept": YAML, "authorization": f"Bearer {TOKEN}"})
    answer = server.app.handle(request)
    response = answer if isinstance(answer, Response) else await answer
    assert callable(response.body)
    sink = RecordingSink()
    await response.body(sink)
    assert b"name: large" in b"".join(sink.lines)
    assert threading.get_ident() not in threads
