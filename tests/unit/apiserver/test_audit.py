"""What the audit log says, what it never says, and how it is kept."""

import json
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kedge.api.catalog import Catalog
from kedge.apiserver import audit, steps
from kedge.apiserver.audit import AuditEvent, AuditLog, Rotation
from kedge.apiserver.authorization.attributes import Decision
from kedge.apiserver.context import RequestContext
from kedge.apiserver.request import Request, User
from kedge.testing.clock import FakeClock
from kedge.web.message import HttpRequest, Response

ADA = User("ada", ("devs", "system:authenticated"), "u1", (("scopes", ("a", "b")),))
THEN = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SECRETS = ("hunter2", "eyJhbGciOi", "s3cr3t-value", "cGFzc3dvcmQ")


def context_for(
    http: HttpRequest, verb: str = "create", plural: str = "pods", name: str = "", part: str = ""
) -> RequestContext:
    """A request of ada about a resource, answered with 200."""
    resource = Catalog().find("", "v1", plural)
    assert resource is not None
    asked = Request(http, ADA, resource, verb, "ns", name, part)
    return RequestContext(
        http, 0.0, verb=verb, authenticated=ADA, user=ADA, request=asked, response=Response(200)
    )


def event_for(http: HttpRequest, name: str = "") -> AuditEvent:
    return audit.event_of(context_for(http, name=name), FakeClock(THEN))


def document(context: RequestContext) -> dict[str, Any]:
    return audit.document_of(audit.event_of(context, FakeClock(THEN)))


def request(query: str = "", **headers: str) -> HttpRequest:
    sent = {"user-agent": "kubectl/v1.36", "authorization": "Bearer eyJhbGciOi.x.y", **headers}
    path = "/api/v1/namespaces/ns/pods"
    body = b'{"data": {"p": "s3cr3t-value"}}'
    return HttpRequest("POST", path, query, sent, body, peer="192.0.2.1")


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_event_has_the_shape_that_kubernetes_tools_read() -> None:
    clock = FakeClock(THEN)
    context = context_for(request("fieldManager=me"), name="p")
    context.started = clock.monotonic()
    context.user = User("bob", ("ops",))
    context.decision = Decision(True, 'RBAC: allowed by RoleBinding "x"')
    context.response = Response(201)
    await clock.advance(0.002)
    event = audit.event_of(context, clock)
    assert audit.document_of(event) == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": event.id,
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/ns/pods?fieldManager=me",
        "verb": "create",
        "user": {
            "username": "ada",
            "uid": "u1",
            "groups": ("devs", "system:authenticated"),
            "extra": {"scopes": ("a", "b")},
        },
        "impersonatedUser": {"username": "bob", "groups": ("ops",)},
        "sourceIPs": ["192.0.2.1"],
        "userAgent": "kubectl/v1.36",
        "objectRef": {
            "resource": "pods",
            "namespace": "ns",
            "name": "p",
            "apiVersion": "v1",
        },
        "responseStatus": {"metadata": {}, "code": 201},
        "requestReceivedTimestamp": "2030-01-02T03:04:05.678901Z",
        "stageTimestamp": "2030-01-02T03:04:05.680901Z",
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": 'RBAC: allowed by RoleBinding "x"',
        },
    }


def test_a_client_may_give_the_id() -> None:
    assert event_for(request(**{"audit-id": "mine-1"})).id == "mine-1"
    long = event_for(request(**{"audit-id": "x" * 5000})).id
    assert len(long) < 1100
    strange = event_for(request(**{"audit-id": "a\x01b"})).id
    assert strange not in ("", "a\x01b")


def test_the_response_names_the_event(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log")
    context = context_for(request(**{"audit-id": "mine-2"}))
    steps.audit(log, FakeClock(THEN))(context)
    log.close()
    assert context.response is not None
    assert ("Audit-Id", "mine-2") in context.response.headers
    assert [event["auditID"] for event in written(tmp_path / "log")] == ["mine-2"]


def test_refusal_has_its_reason_and_message() -> None:
    context = context_for(request(), verb="get", name="p")
    context.decision = Decision(False)
    context.response = Response(403)
    context.reason, context.message = "Forbidden", 'pods "p" is forbidden'
    event = document(context)
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": 'pods "p" is forbidden',
        "reason": "Forbidden",
        "code": 403,
    }
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"


def test_annotations_of_admission_plugins_follow_the_decision() -> None:
    context = context_for(request())
    assert context.request is not None
    context.request.annotations["plugin/key"] = "value"
    context.decision = Decision(True)
    assert list(document(context)["annotations"]) == [
        "authorization.k8s.io/decision",
        "authorization.k8s.io/reason",
        "plugin/key",
    ]


def test_path_without_a_resource_has_no_object() -> None:
    context = RequestContext(HttpRequest("GET", "/version"), 0.0, response=Response(200))
    event = document(context)
    assert event["verb"] == "get"
    assert "objectRef" not in event
    assert "annotations" not in event


def test_request_without_valid_credentials_has_no_user_name() -> None:
    http = HttpRequest("GET", "/api/v1/pods")
    event = document(RequestContext(http, 0.0, response=Response(401), reason="Unauthorized"))
    assert (event["user"], event["responseStatus"]["code"]) == ({}, 401)


def test_watch_is_logged_when_its_response_begins() -> None:
    async def stream(sink: object) -> None: ...

    context = context_for(request(), verb="watch")
    context.response = Response(200, stream)
    assert document(context)["stage"] == "ResponseStarted"


def test_proxies_are_listed_but_the_peer_is_always_last() -> None:
    headers = {"x-forwarded-for": "203.0.113.9, nonsense", "x-real-ip": "203.0.113.8"}
    event = event_for(request(**headers))
    assert event.sources == ("203.0.113.9", "203.0.113.8", "192.0.2.1")


def test_secrets_never_reach_the_file(tmp_path: Path) -> None:
    """Every place where a credential can travel, and every sort of answer."""
    log = AuditLog(tmp_path / "audit.log")
    headers = {
        "cookie": "session=hunter2",
        "sec-websocket-protocol": "base64url.bearer.authorization.k8s.io.cGFzc3dvcmQ",
        "x-remote-extra-password": "hunter2",
    }
    for query in ("", "access_token=hunter2", "To%6Ben=hunter2&a=b", "client-key=cGFzc3dvcmQ"):
        for plural, part in (("secrets", ""), ("serviceaccounts", "token"), ("pods", "")):
            context = context_for(request(query, **headers), plural=plural, name="n", part=part)
            quoting = "data.p: Invalid value: s3cr3t-value" if plural != "pods" else "nothing"
            context.response = Response(422)
            context.reason, context.message = "Invalid", quoting
            log.add(audit.event_of(context, FakeClock(THEN)))
    log.close()
    text = (tmp_path / "audit.log").read_text()
    assert text.count("\n") == 12
    assert [secret for secret in SECRETS if secret in text] == []
    assert "access_token=***" in text
    assert "a=b" in text


def test_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.touch(0o644)
    log = AuditLog(path)
    log.add(event_for(request()))
    log.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_grown_file_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, Rotation(max_bytes=1500, backups=2))
    for number in range(30):
        log.add(event_for(request(), name=f"p{number}"))
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 1500 for file in files)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert written(path)[-1]["objectRef"]["name"] == "p29"
    newest_before = written(tmp_path / "audit.log.1")[-1]["objectRef"]["name"]
    first = written(path)[0]["objectRef"]["name"]
    assert int(newest_before[1:]) + 1 == int(first[1:])


def test_log_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    for name in ("a", "b"):
        log = AuditLog(tmp_path / "audit.log")
        log.add(event_for(request(), name=name))
        log.close()
    assert [e["objectRef"]["name"] for e in written(tmp_path / "audit.log")] == ["a", "b"]


def test_disk_that_fails_is_counted_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").mkdir()
    log = AuditLog(tmp_path / "logs" / "audit.log", Rotation(max_bytes=1))
    shutil.rmtree(tmp_path / "logs")
    log.add(event_for(request()))
    log.add(event_for(request()))
    log.close()
    assert log.dropped >= 1
    assert "audit log cannot be written" in caplog.text


def test_file_that_cannot_be_written_is_noticed_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AuditLog(tmp_path / "no such directory" / "audit.log")


def test_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / "audit.log").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        AuditLog(tmp_path / "audit.log")
    assert elsewhere.read_text() == "precious"


def test_endless_user_agent_is_cut() -> None:
    event = event_for(HttpRequest("GET", "/", "", {"user-agent": "x" * 5000}))
    assert event.user_agent == "x" * 1024 + "...TRUNCATED"
