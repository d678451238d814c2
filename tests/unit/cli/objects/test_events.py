"""`kedge events`."""

from argparse import Namespace
from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.events import show, sort
from kedge.testing.local_server import LocalServer

EVENTS = "/api/v1/namespaces/default/events"


def event(name: str, subject: str, type_: str, at: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": subject, "namespace": "default"},
        "type": type_,
        "reason": "Pulled",
        "message": f"about {subject}\x1b[2J",
        "lastTimestamp": at,
        "firstTimestamp": at,
    }


@pytest.fixture(autouse=True)
async def events(server: LocalServer) -> None:
    for each in (
        event("b", "web", "Normal", "2026-01-01T00:00:02Z"),
        event("a", "db", "Warning", "2026-01-01T00:00:01Z"),
    ):
        await server.post(EVENTS, each)


def flags(**given: Any) -> Namespace:
    usual = {"subject": None, "types": "", "watch": False, "no_headers": False, "output": ""}
    return Namespace(all_namespaces=False, **{**usual, **given})


async def test_the_latest_comes_last_and_terminals_are_safe(
    there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await show(there, flags()) == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "Pod/db" in first
    assert "Pod/web" in second
    assert "\x1b" not in second


async def test_events_are_selected_by_object_and_type(
    there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    await show(there, flags(subject="pod/web", no_headers=True))
    assert "Pod/web" in capsys.readouterr().out
    await show(there, flags(types="warning", output="name"))
    assert capsys.readouterr().out == "event/a\n"
    await show(there, flags(subject="pod/none"))
    assert capsys.readouterr().err == "No resources found in default namespace.\n"


def test_events_without_a_time_come_first() -> None:
    old: dict[str, Any] = {"metadata": {"name": "x"}}
    new = event("b", "web", "Normal", "2026-01-01T00:00:02Z")
    assert sort([new, old]) == [old, new]
