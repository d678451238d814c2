import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor import wire
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.server import (
    AgentConnection,
    AgentListener,
    AgentRequest,
    EventFeed,
    Handler,
    RequestError,
    UnknownIdError,
)


class Site:
    """A listener with some requests, and an agent that is connected to it."""

    def __init__(self, directory: Path, loop: EventLoop) -> None:
        self.feed = EventFeed()
        self.left: list[AgentConnection] = []
        self.loop = loop
        handlers: dict[str, Handler] = {
            "echo": lambda call: call.answer({"said": call.message["word"]}),
            "watch": self._watch,
            "missing": self._missing,
            "fail": self._fail,
            "break": self._break,
        }
        self.listener = AgentListener(str(directory), loop, handlers, left=self._leave)
        self.agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.agent.settimeout(20)
        self.agent.connect(str(directory / wire.SOCKET))

    def _watch(self, call: AgentRequest) -> None:
        self.feed.add(call.connection)
        call.answer()

    def _missing(self, call: AgentRequest) -> None:
        raise UnknownIdError("there is no such thing")

    def _fail(self, call: AgentRequest) -> None:
        raise OSError(28, "No space left on device")

    def _break(self, call: AgentRequest) -> None:
        raise KeyError("bug")

    def _leave(self, connection: AgentConnection) -> None:
        self.left.append(connection)
        self.loop.stop()

    def ask(self, **message: Any) -> Any:
        wire.post(self.agent, *wire.packet({"id": 1, **message}))
        return self.answer()

    def answer(self) -> Any:
        """Run the loop until the agent has a message."""
        self.loop.on(self.agent.fileno(), 1, self.loop.stop)
        self.loop.run()
        self.loop.off(self.agent.fileno())
        return wire.take(self.agent)[0]


@pytest.fixture
def site(tmp_path: Path, event_loop: EventLoop) -> Iterator[Site]:
    made = Site(tmp_path, event_loop)
    yield made
    made.agent.close()
    if not made.left:
        event_loop.run()
    made.listener.close()


def test_a_request_gets_its_answer(site: Site) -> None:
    assert site.ask(do="echo", word="hi") == {"id": 1, "result": {"said": "hi"}}


@pytest.mark.parametrize(
    ("do", "error", "kind"),
    [
        ("missing", "there is no such thing", "missing"),
        ("fail", "No space left on device", "failure"),
        ("dance", "the supervisor does not know how to dance", "failure"),
    ],
)
def test_errors_are_answered_with_their_kind(site: Site, do: str, error: str, kind: str) -> None:
    assert site.ask(do=do) == {"id": 1, "error": error, "kind": kind}


def test_a_bug_is_answered_and_logged(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.ask(do="break")["error"] == "the supervisor failed: KeyError: 'bug'"
    assert "KeyError" in capsys.readouterr().err


def test_events_reach_those_who_watch(site: Site) -> None:
    site.feed.send({"type": "early"})
    site.ask(do="watch")
    site.feed.send({"type": "started"})
    assert site.answer() == {"event": {"type": "started"}}


def test_an_agent_that_leaves_is_reported_and_gets_no_events(site: Site) -> None:
    site.ask(do="watch")
    site.agent.close()
    site.loop.run()
    assert len(site.left) == 1
    site.feed.send({"type": "late"})
    assert site.feed._connections == []


def test_the_socket_is_for_its_owner_only(site: Site, tmp_path: Path) -> None:
    assert os.stat(tmp_path / wire.SOCKET).st_mode & 0o777 == 0o600


def test_an_agent_that_reads_nothing_is_disconnected(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr("kedge.supervisor.server._MAX_UNSENT", 3)
    site.ask(do="watch")
    monkeypatch.setattr(wire, "post", full)
    for _ in range(4):
        site.feed.send({"type": "x"})
    assert len(site.left) == 1


def test_refusals_have_the_words_of_the_error() -> None:
    sent: list[Any] = []
    connection: Any = type("C", (), {"send": lambda self, message: sent.append(message)})()
    AgentRequest(connection, {"id": 7}).refuse(RequestError("not ready"))
    assert sent == [{"id": 7, "error": "not ready", "kind": "failure"}]
