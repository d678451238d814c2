"""What the audit log says, what it never says, and how it is kept."""

import json
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kedge.api.catalog import Catalog
from kedge.apiserver import audit
from kedge.apiserver.audit import AuditLog, Entry, Rotation
from kedge.apiserver.request import Request, User
from kedge.machinery.errors import StatusError, unauthorized
from kedge.web.message import HttpRequest

ADA = User("ada", ("devs", "system:authenticated"), "u1", (("scopes", ("a", "b")),))
THEN = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SECRETS = ("hunter2", "eyJhbGciOi", "s3cr3t-value", "cGFzc3dvcmQ")


def entry_for(
    http: HttpRequest, verb: str = "create", plural: str = "pods", name: str = "", part: str = ""
) -> Entry:
    resource = Catalog().find("", "v1", plural)
    assert resource is not None
    entry = audit.begun(http, "192.0.2.1", THEN)
    entry.user = ADA
    audit.about(entry, Request(http, ADA, resource, verb, "ns", name, part))
    return entry


def request(query: str = "", **headers: str) -> HttpRequest:
    sent = {"user-agent": "kubectl/v1.36", "authorization": "Bearer eyJhbGciOi.x.y", **headers}
    path = "/api/v1/namespaces/ns/pods"
    return HttpRequest("POST", path, query, sent, b'{"data": {"p": "s3cr3t-value"}}')


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_event_has_the_shape_that_kubernetes_tools_read() -> None:
    entry = entry_for(request("fieldManager=me"), name="p")
    entry.impersonated = User("bob", ("ops",))
    entry.decided(True, 'RBAC: allowed by RoleBinding "x"')
    entry.ended(201, THEN + timedelta(milliseconds=2))
    assert audit.event(entry) == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": entry.id,
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


def test_refusal_is_told_with_its_reason() -> None:
    entry = entry_for(request(), verb="get", name="p")
    entry.decided(False, "")
    entry.failed(StatusError(403, "Forbidden", 'pods "p" is forbidden'))
    entry.ended(403, THEN)
    event = audit.event(entry)
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": 'pods "p" is forbidden',
        "reason": "Forbidden",
        "code": 403,
    }
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"


def test_path_without_a_resource_has_no_object() -> None:
    entry = audit.begun(HttpRequest("GET", "/version"), "192.0.2.1", THEN)
    entry.ended(200, THEN)
    event = audit.event(entry)
    assert event["verb"] == "get"
    assert "objectRef" not in event


def test_stranger_has_no_name_and_a_watch_is_told_when_it_begins() -> None:
    refused = audit.begun(HttpRequest("GET", "/api/v1/pods"), "192.0.2.1", THEN)
    refused.failed(unauthorized())
    refused.ended(401, THEN)
    event = audit.event(refused)
    assert (event["user"], event["responseStatus"]["code"]) == ({}, 401)
    watch = entry_for(request(), verb="watch")
    watch.ended(200, THEN, streaming=True)
    assert audit.event(watch)["stage"] == "ResponseStarted"


def test_proxies_are_listed_but_the_peer_is_always_last() -> None:
    headers = {"x-forwarded-for": "203.0.113.9, nonsense", "x-real-ip": "203.0.113.8"}
    entry = audit.begun(request(**headers), "192.0.2.1", THEN)
    assert entry.sources == ("203.0.113.9", "203.0.113.8", "192.0.2.1")


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
            entry = entry_for(request(query, **headers), plural=plural, name="n", part=part)
            quoting = "data.p: Invalid value: s3cr3t-value" if plural != "pods" else "nothing"
            entry.failed(StatusError(422, "Invalid", quoting))
            entry.ended(422, THEN)
            log.add(entry)
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
    log.add(entry_for(request()))
    log.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_grown_file_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, Rotation(max_bytes=1500, backups=2))
    for number in range(30):
        log.add(entry_for(request(), name=f"p{number}"))
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
        log.add(entry_for(request(), name=name))
        log.close()
    assert [e["objectRef"]["name"] for e in written(tmp_path / "audit.log")] == ["a", "b"]


def test_disk_that_fails_is_counted_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").mkdir()
    log = AuditLog(tmp_path / "logs" / "audit.log", Rotation(max_bytes=1))
    shutil.rmtree(tmp_path / "logs")
    log.add(entry_for(request()))
    log.add(entry_for(request()))
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
    entry = audit.begun(HttpRequest("GET", "/", "", {"user-agent": "x" * 5000}), "", THEN)
    assert entry.user_agent == "x" * 1024 + "...TRUNCATED"
