"""What every request passes: routing, who asks, errors, and the pages about the server itself."""

from typing import Any

import pytest

from kedge.apiserver.context import RequestContext
from kedge.apiserver.pending import MOST_ANSWERS, AnswerPending
from kedge.testing.local_server import TABLE, LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


# Routing.


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/nothings", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/configmaps/a", 404),
        ("GET", f"{MAPS}/a/status", 404),
        ("POST", "/api/v1/configmaps", 405),
        ("POST", f"{MAPS}/a", 405),
        ("PUT", MAPS, 405),
        ("PATCH", MAPS, 405),
        ("HEAD", MAPS, 405),
        ("OPTIONS", MAPS, 405),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
        ("POST", "/version", 405),
    ],
)
async def test_what_is_not_offered(server: LocalServer, method: str, path: str, code: int) -> None:
    answer = await server.call(method, path)
    assert answer.status == code
    status = answer.document
    assert status["kind"] == "Status"
    assert (status["code"], status["details"]) == (code, {})
    if code == 404:
        assert status["message"] == "the server could not find the requested resource"
        assert status["reason"] == "NotFound"
    else:
        assert status["reason"] == "MethodNotAllowed"


@pytest.mark.parametrize("path", ["/foo", "/apis/foo", "/apis/foo/v1", "/apis/foo/v1/bars"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_unknown_paths_are_plain_text(server: LocalServer, method: str, path: str) -> None:
    answer = await server.call(method, path)
    assert (answer.status, answer.text) == (404, "404 page not found\n")
    assert answer.headers["Content-Type"].startswith("text/plain")


async def test_names_in_paths_are_decoded_once(server: LocalServer) -> None:
    made = await server.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "a:b"}}
    )
    for spelling in ("a:b", "a%3Ab"):
        url = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{spelling}"
        assert await server.get(url) == made
    assert (await server.call("GET", f"{MAPS}/..%2F..%2Fpods")).status == 404


async def test_a_long_path_or_query_is_no_problem(server: LocalServer) -> None:
    assert (await server.call("GET", f"{MAPS}/{'x' * 5000}")).status == 404
    query = "&".join(f"a{i}=1" for i in range(5000))
    assert (await server.call("GET", f"{MAPS}?{query}&pretty=1")).status == 200


# Who asks.


async def test_wrong_credentials_are_401_and_none_are_anonymous(server: LocalServer) -> None:
    answer = await server.call("GET", MAPS, token="wrong")
    assert (answer.status, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")
    assert "WWW-Authenticate" not in answer.headers
    answer = await server.call("GET", MAPS, token=None)
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        'configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" '
        'in API group "" in the namespace "default"'
    )
    named = await server.call("DELETE", "/apis/apps/v1/namespaces/x/deployments/d", token=None)
    assert named.message.startswith('deployments.apps "d" is forbidden: User')
    wide = await server.call("GET", "/api/v1/pods", token=None)
    assert wide.message.endswith("at the cluster scope")
    path = await server.call("GET", "/metrics", token=None)
    assert path.message == 'forbidden: User "system:anonymous" cannot get path "/metrics"'


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
async def test_anybody_may_ask_how_the_server_is(server: LocalServer, path: str) -> None:
    assert (await server.call("GET", path, token=None)).status == 200


async def test_basic_credentials_are_none_at_all(server: LocalServer) -> None:
    headers = {"authorization": "Basic eDp5"}
    assert (await server.call("GET", MAPS, token=None, headers=headers)).status == 403


# The server itself.


async def test_the_version_has_digits_only_in_major_and_minor(server: LocalServer) -> None:
    for path in ("/version", "/version/", "/version?timeout=32s"):
        version = await server.get(path)
        assert (version["major"], version["minor"]) == ("1", "36")
        assert version["gitVersion"].startswith("v1.36.")


async def test_metrics_count_requests_by_code(server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    await server.call("GET", f"{MAPS}/none")
    text = (await server.call("GET", "/metrics")).text
    assert (
        'apiserver_request_total{code="201",group="",resource="configmaps",subresource="",'
        'verb="CREATE"} 1'
    ) in text
    assert (
        'apiserver_request_total{code="404",group="",resource="configmaps",subresource="",'
        'verb="GET"} 1'
    ) in text
    assert 'apiserver_resource_objects{group="",resource="configmaps"} 1' in text
    assert "# TYPE apiserver_request_duration_seconds histogram" in text


async def test_the_root_lists_the_paths(server: LocalServer) -> None:
    paths = (await server.get("/"))["paths"]
    assert {"/api/v1", "/apis/apps/v1", "/healthz", "/version"} <= set(paths)


# Discovery and OpenAPI.


@pytest.mark.parametrize("path", ["/api", "/apis", "/openapi/v2", "/openapi/v3"])
async def test_what_the_server_says_of_itself_need_not_be_sent_twice(
    server: LocalServer, path: str
) -> None:
    first = await server.call("GET", path)
    assert (first.status, first.headers["Cache-Control"]) == (200, "public")
    assert first.headers["Vary"] == "Accept"
    again = await server.call("GET", path, headers={"if-none-match": first.headers["ETag"]})
    assert (again.status, again.text) == (304, "")
    other = await server.call("GET", path, headers={"if-none-match": '"x"'})
    assert other.status == 200


async def test_discovery_comes_in_two_flavours(server: LocalServer) -> None:
    for path in ("/api", "/apis"):
        accept = f"{AGGREGATED},{AGGREGATED.replace('v2', 'v2beta1')},application/json"
        new = await server.call("GET", f"{path}?timeout=32s", accept=accept)
        assert new.headers["Content-Type"] == AGGREGATED
        assert new.document["kind"] == "APIGroupDiscoveryList"
        old = await server.call("GET", f"{path}/")
        assert old.headers["Content-Type"] == "application/json"
        assert old.document["kind"] in ("APIVersions", "APIGroupList")
        assert old.headers["ETag"] != new.headers["ETag"]
    assert (await server.get("/apis/apps"))["kind"] == "APIGroup"
    for path in ("/api/v1", "/apis/apps/v1", "/apis/apps/v1/"):
        assert (await server.get(path))["kind"] == "APIResourceList"


async def test_openapi_documents_are_found_by_their_hash(server: LocalServer) -> None:
    index = await server.get("/openapi/v3")
    url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
    right = await server.call("GET", f"{url}&timeout=32s")
    assert right.status == 200
    assert "immutable" in right.headers["Cache-Control"]
    assert "Expires" in right.headers
    assert right.document["openapi"].startswith("3.")
    wrong = await server.call("GET", "/openapi/v3/apis/apps/v1?hash=ABC")
    assert (wrong.status, wrong.headers["Location"]) == (301, url)
    none = await server.call("GET", "/openapi/v3/apis/apps/v1")
    assert none.status == 200
    assert none.headers["Cache-Control"] == "no-cache"
    assert (await server.call("GET", "/openapi/v3/apis/nothing/v1")).status == 404


# Reviews.

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"


async def review(server: LocalServer, path: str, spec: Any) -> Any:
    answer = await server.call("POST", path, {"spec": spec})
    assert answer.status == 201, answer.text
    return answer.document["status"]


async def test_who_am_i(server: LocalServer) -> None:
    status = await review(server, f"{AUTHENTICATION}/selfsubjectreviews", {})
    assert status["userInfo"]["username"] == "kubernetes-admin"
    assert "system:masters" in status["userInfo"]["groups"]


async def test_may_i_and_may_they(server: LocalServer) -> None:
    pods = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}}
    mine = await review(server, f"{AUTHORIZATION}/selfsubjectaccessreviews", pods)
    assert mine == {"allowed": True}
    others = f"{AUTHORIZATION}/subjectaccessreviews"
    assert (await review(server, others, pods | {"user": "joe"}))["allowed"] is False
    boss = pods | {"user": "joe", "groups": ["system:masters"]}
    assert await review(server, others, boss) == {"allowed": True}
    path = {"nonResourceAttributes": {"verb": "get", "path": "/healthz"}, "user": "joe"}
    anybody = path | {"groups": ["system:authenticated"]}
    assert (await review(server, others, anybody))["allowed"] is True
    local = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
    assert (await review(server, local, pods | {"user": "joe"}))["allowed"] is False
    rules = await review(
        server, f"{AUTHORIZATION}/selfsubjectrulesreviews", {"namespace": "default"}
    )
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert everything in rules["resourceRules"]
    assert rules["incomplete"] is False


async def test_whose_token_is_this(server: LocalServer) -> None:
    good = await review(server, f"{AUTHENTICATION}/tokenreviews", {"token": "secret"})
    assert good["authenticated"] is True
    assert good["user"]["username"] == "kubernetes-admin"
    bad = await review(server, f"{AUTHENTICATION}/tokenreviews", {"token": "guess"})
    assert bad == {"user": {}, "error": "invalid bearer token"}


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (f"{AUTHORIZATION}/selfsubjectaccessreviews", {}),
        (
            f"{AUTHORIZATION}/selfsubjectaccessreviews",
            {"resourceAttributes": {}, "nonResourceAttributes": {}},
        ),
        (f"{AUTHORIZATION}/subjectaccessreviews", {"resourceAttributes": {}}),
    ],
)
async def test_questions_that_cannot_be_answered(
    server: LocalServer, path: str, spec: dict[str, Any]
) -> None:
    answer = await server.call("POST", path, {"spec": spec})
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_a_review_is_no_table(server: LocalServer) -> None:
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    body = {"spec": {"resourceAttributes": {"verb": "get"}}}
    assert (await server.call("POST", path, body, accept=TABLE)).status == 406


# Two views of one store.

EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


async def test_events_have_two_names_and_one_store(server: LocalServer) -> None:
    old_watch = await server.watch(f"{EVENTS}?watch=true")
    new_watch = await server.watch(f"{NEW_EVENTS}?watch=true")
    body = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Started",
        "message": "It started",
        "type": "Normal",
        "source": {"component": "kubelet"},
        "count": 3,
        "firstTimestamp": "2029-01-01T00:00:00.123456+00:00",
    }
    old = await server.post(EVENTS, body)
    assert old["firstTimestamp"] == "2029-01-01T00:00:00Z"
    new = await server.get(f"{NEW_EVENTS}/e")
    assert (new["kind"], new["apiVersion"]) == ("Event", "events.k8s.io/v1")
    for name in ("uid", "resourceVersion"):
        assert new["metadata"][name] == old["metadata"][name]
    assert new["note"] == "It started"
    assert new["regarding"]["name"] == "p"
    assert new["deprecatedCount"] == 3
    assert new["deprecatedSource"] == {"component": "kubelet"}
    listed = await server.get(f"{NEW_EVENTS}?fieldSelector=regarding.name=p,reason=Started")
    assert listed["kind"] == "EventList"
    assert listed["items"][0]["note"] == "It started"
    assert (await server.get(f"{NEW_EVENTS}?fieldSelector=regarding.name=q"))["items"] == []
    found = await server.get(f"{EVENTS}?fieldSelector=involvedObject.name=p")
    assert [old | each for each in found["items"]] == [old]
    wrong = await server.call("GET", f"{NEW_EVENTS}?fieldSelector=involvedObject.name=p")
    assert wrong.status == 400
    [old_event], [new_event] = await old_watch.events(), await new_watch.events()
    assert old_event["object"] == old
    assert new_event["object"] == new
    assert (await server.get(NEW_EVENTS, accept=TABLE))["kind"] == "Table"


async def test_an_event_written_in_the_new_view_is_read_in_the_old(server: LocalServer) -> None:
    body = {
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "eventTime": "2029-01-01T00:00:00.123456Z",
        "reportingController": "example.com/me",
        "reportingInstance": "me-1",
        "action": "Starting",
        "reason": "Started",
        "note": "It started",
        "type": "Normal",
    }
    new = await server.post(NEW_EVENTS, body)
    assert new["eventTime"] == "2029-01-01T00:00:00.123456Z"
    old = await server.get(f"{EVENTS}/e")
    assert (old["message"], old["reportingComponent"]) == ("It started", "example.com/me")
    patched = await server.merge(f"{NEW_EVENTS}/e", {"metadata": {"labels": {"a": "b"}}})
    assert (await server.get(f"{EVENTS}/e"))["metadata"]["labels"] == {"a": "b"}
    await server.delete(f"{NEW_EVENTS}/e")
    assert (await server.call("GET", f"{EVENTS}/e")).status == 404
    assert patched["kind"] == "Event"


async def test_events_are_forgotten_after_an_hour(server: LocalServer) -> None:
    body = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "r",
    }
    await server.post(EVENTS, body)
    watching = await server.watch(f"{EVENTS}?watch=true&timeoutSeconds=9999")
    await server.clock.advance(3700)
    assert (await server.call("GET", f"{EVENTS}/e")).status == 404
    assert [kind for kind, _ in await watching.seen()] == ["ADDED", "DELETED"]


# Defects.


async def test_a_defect_is_a_500_that_tells_nothing(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> Any:
        raise RuntimeError("private detail")

    monkeypatch.setattr(server.app.api, "find", fail)
    answer = await server.call("GET", f"{MAPS}/a")
    assert (answer.status, answer.reason) == (500, "InternalError")
    assert "private" not in answer.text


# Answers of other servers.


def ask_for_answers(server: LocalServer, number: int, seconds: float = 0.0) -> None:
    """Make each request wait for this number of answers, each of which takes some seconds."""
    got = 0

    async def ask() -> None:
        nonlocal got
        got += 1
        await server.clock.advance(seconds)

    def step(context: RequestContext) -> None:
        if got < number:
            raise AnswerPending(ask)

    server.app._steps = (step, *server.app._steps)


async def test_a_request_waits_for_many_answers_of_other_servers(server: LocalServer) -> None:
    ask_for_answers(server, MOST_ANSWERS)
    assert (await server.call("GET", MAPS)).status == 200


async def test_a_request_that_needs_too_many_answers_gets_504(server: LocalServer) -> None:
    ask_for_answers(server, MOST_ANSWERS + 1)
    answer = await server.call("GET", MAPS)
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.endswith("the request needs more than 200 answers of other servers")


async def test_answers_that_come_too_late_end_the_request(server: LocalServer) -> None:
    server.app._in_flight.seconds = 60
    ask_for_answers(server, 3, seconds=25)
    answer = await server.call("GET", MAPS)
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert "within the allotted timeout" in answer.message
