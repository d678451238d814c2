from ssl import create_default_context
from typing import Any

import pytest

from kedge.api.catalog import BUILT_IN
from kedge.apiserver.request import Request, User
from kedge.apiserver.several import decisions
from kedge.apiserver.several.decisions import DecisionRelay
from kedge.apiserver.several.membership import PeerServer
from kedge.apiserver.several.relay import RELAYED
from kedge.client.transport import Call, Reply, Unreachable
from kedge.web.message import HttpRequest

KIND = next(each for each in BUILT_IN if each.plural == "schedulingdecisions")
PATH = "/apis/scheduling.kedge/v1alpha1/namespaces/default/schedulingdecisions/web"
Asked = list[tuple[str, Call]]


class Members:
    def __init__(self, *urls: str) -> None:
        self.peers = [PeerServer(url, url, "", 1, 0.0) for url in urls]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The requests to other servers, of which `dead` does not answer and `leader` decides."""
    calls: Asked = []

    class Transport:
        def __init__(self, url: str, **_: Any) -> None:
            self.url = url

        async def send(self, call: Call) -> Reply:
            calls.append((self.url, call))
            if "dead" in self.url:
                raise Unreachable("nothing listens")
            status = 200 if "leader" in self.url else 503
            return Reply(status, {"content-type": "application/json"}, b'{"node":"a"}')

        async def close(self) -> None:
            calls[-1] = (f"{self.url} closed", calls[-1][1])

    monkeypatch.setattr(decisions, "HttpTransport", Transport)
    return calls


def request(**headers: str) -> Request:
    http = HttpRequest("GET", PATH, "pretty=true", {"accept": "application/yaml", **headers}, b"")
    return Request(http, User("jane"), KIND, "get", "default", "web")


def relay(*urls: str) -> DecisionRelay:
    return DecisionRelay(Members(*urls), create_default_context)  # type: ignore[arg-type]


async def test_the_server_with_the_scheduler_answers(asked: Asked) -> None:
    urls = ("https://dead:1", "https://idle:1", "https://leader:1", "https://later:1")
    answer = await relay(*urls).answer(request(authorization="Bearer secret"))
    assert answer is not None
    assert (answer.status, answer.body) == (200, b'{"node":"a"}')
    assert answer.content_type == "application/json"
    assert [url for url, _ in asked] == [f"{url} closed" for url in urls[:3]]
    call = asked[-1][1]
    assert (call.method, call.path, call.query) == ("GET", PATH, "pretty=true")
    # Credentials of the user stay here, and the other server asks nobody.
    assert call.headers == {RELAYED: "true", "accept": "application/yaml"}


async def test_without_a_scheduler_there_is_no_answer(asked: Asked) -> None:
    assert await relay("https://dead:1", "https://idle:1").answer(request()) is None
    assert await relay().answer(request()) is None


async def test_a_request_of_another_server_is_not_passed_on(asked: Asked) -> None:
    assert await relay("https://leader:1").answer(request(**{RELAYED: "true"})) is None
    assert asked == []


async def test_only_servers_with_a_certificate_are_asked(asked: Asked) -> None:
    assert await relay("", "http://leader:1", "https://leader:0").answer(request()) is None
    assert asked == []
