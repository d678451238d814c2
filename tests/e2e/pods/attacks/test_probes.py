"""Probes and hooks whose text, or whose answer, is made to do more than to ask."""

from collections.abc import Callable
from typing import Any

import pytest

Json = dict[str, Any]

BREAKS = [
    "x\r\nX-Injected: yes",
    "x\r\n\r\nSET key value\r\n",
    "x\ny",
    "x\0y",
    "\x7f",
]


def http(port: int, *headers: tuple[str, str], **more: Any) -> Json:
    named = [{"name": name, "value": value} for name, value in headers]
    action = {"port": port, "host": "127.0.0.1", "path": "/", "httpHeaders": named, **more}
    return {"httpGet": action}


@pytest.mark.parametrize("value", BREAKS)
@pytest.mark.parametrize("where", ["livenessProbe", "postStart"])
def test_a_header_cannot_end_its_line(pods: Any, value: str, where: str) -> None:
    """A pod author could speak any protocol to any port of the machine."""
    handler = http(1, ("X-Key", value))
    container = {where: handler} if where == "livenessProbe" else {"lifecycle": {where: handler}}
    with pytest.raises(Exception, match=r"422.*control characters"):
        pods.create("injects", container=container)


@pytest.mark.parametrize(
    ("key", "value"),
    [("path", "/\r\nX-Injected: yes\r\n"), ("host", "127.0.0.1\r\nX-Injected: yes")],
)
def test_a_path_or_a_host_cannot_end_its_line_either(
    pods: Any, listen: Callable[..., Any], key: str, value: str
) -> None:
    listener = listen()
    probe = http(listener.port, **{key: value}) | {"periodSeconds": 1}
    pods.create("injects", container={"readinessProbe": probe}, hostNetwork=True)
    pods.when("injects", lambda pod: pod["status"].get("phase") == "Running")
    pods.when("injects", lambda _: listener.received or pods.events("injects", "Unhealthy"))
    assert not any(b"\r\nX-Injected" in each for each in listener.received)


def endless_headers(connected: Any) -> None:
    connected.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(4_000_000):
        connected.sendall(b"X-%d: %s\r\n" % (number, b"y" * 200))


def endless_interim_answers(connected: Any) -> None:
    for _ in range(4_000_000):
        connected.sendall(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n")


@pytest.mark.parametrize("answer", [endless_headers, endless_interim_answers])
def test_an_answer_without_end_is_given_up(
    pods: Any, agent: Any, listen: Callable[..., Any], answer: Callable[[Any], None]
) -> None:
    """A hook has no timeout, and headers were all kept in memory."""
    listener = listen(answer)
    before = agent.memory()
    hook = http(listener.port)
    pods.create("hooked", container={"lifecycle": {"postStart": hook}}, restartPolicy="Never")
    pods.when("hooked", lambda _: pods.events("hooked", "FailedPostStartHook"), within=20)
    assert agent.memory() - before < 50 << 20


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:nonsense/\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1/\r\n\r\n",
        "HTTP/1.1 ² OK\r\n\r\n".encode("latin-1"),
    ],
)
def test_an_answer_that_makes_no_sense_does_not_end_the_probing(
    pods: Any, listen: Callable[..., Any], eventually: Callable[..., Any], answer: bytes
) -> None:
    listener = listen(lambda connected: connected.sendall(answer))
    probe = http(listener.port) | {"periodSeconds": 1}
    pods.create("probed", container={"readinessProbe": probe})
    eventually(lambda: len(listener.received) >= 3)


def test_a_command_that_never_stops_talking_does_not_stop_the_node(
    pods: Any, agent: Any, responds: Callable[[str], None]
) -> None:
    """Its output was read in a loop that left the agent no time for anything else."""
    before = agent.memory()
    loud = {"exec": {"command": ["cat", "/dev/zero"]}, "timeoutSeconds": 20, "periodSeconds": 20}
    pods.create("loud", container={"readinessProbe": loud})
    pods.when("loud", lambda pod: pod["status"].get("phase") == "Running")
    responds("others")
    assert agent.memory() - before < 50 << 20
