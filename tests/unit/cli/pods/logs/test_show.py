"""Logs on a terminal."""

from collections.abc import AsyncIterator, Sequence

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.pods.logs.show import LogFlags, lines, show
from kedge.testing.agents import FakeAgent
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([b"a\nb", b"c\n"], [b"a\n", b"bc\n"]),
        ([b"a\n", b"", b"\n"], [b"a\n", b"\n"]),
        ([b"not ended"], [b"not ended"]),
        ([], []),
    ],
)
async def test_pieces_become_lines(parts: Sequence[bytes], expected: list[bytes]) -> None:
    assert [line async for line in lines(pieces(*parts))] == expected


def test_the_query_says_only_what_was_asked_for() -> None:
    assert LogFlags(pod="p", tail=-1).query("c") == {"container": "c"}
    asked = LogFlags(pod="p", follow=True, previous=True, timestamps=True, tail=0, since=5)
    assert asked.query("c") == {
        "container": "c",
        "follow": "true",
        "previous": "true",
        "timestamps": "true",
        "tailLines": "0",
        "sinceSeconds": "5",
    }


@pytest.fixture
async def node(server: LocalServer) -> AsyncIterator[FakeAgent]:
    agent = FakeAgent()
    await agent.listen()
    await agent.register(server)
    spec = {
        "nodeName": "n",
        "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
    }
    document = pod_document(metadata={"name": "p"}, spec=spec)
    await server.post("/api/v1/namespaces/default/pods", document)
    yield agent
    await agent.close()


async def test_one_container_is_shown(
    there: ApiSession, node: FakeAgent, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert await show(there, LogFlags(pod="pod/p", container="b", tail=3)) == 0
    assert capsysbinary.readouterr().out == b"said\n"
    assert node.asked[0].path == "/containerLogs/default/p/b"


async def test_all_containers_are_shown_with_their_names(
    there: ApiSession, node: FakeAgent, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    await show(there, LogFlags(pod="p", everyone=True, prefix=True))
    assert capsysbinary.readouterr().out == b"[pod/p/a] said\n[pod/p/b] said\n"


async def test_what_selects_no_pods_is_refused(there: ApiSession) -> None:
    with pytest.raises(Failure, match="the server doesn't have a resource type"):
        await show(there, LogFlags(pod="nonsense/web"))
