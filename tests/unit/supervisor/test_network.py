"""Requests for sockets, and the namespaces that supervisors share."""

import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from kedge.supervisor import network
from kedge.supervisor.server import AgentRequest, RequestError


class FakeRequest:
    """A request, and what was answered."""

    def __init__(self, **message: object) -> None:
        self.message = message
        self.descriptors: list[int] = []
        self.answers = 0

    def answer(self, result: Any = None, descriptors: Any = ()) -> None:
        self.answers += 1
        self.descriptors += descriptors


def handle(do: str, request: FakeRequest) -> None:
    network.SocketRequests().handlers()[do](cast(AgentRequest, request))


def test_a_socket_is_made() -> None:
    request = FakeRequest(family=socket.AF_INET, kind=socket.SOCK_DGRAM, protocol=0)
    handle("socket", request)
    with socket.socket(fileno=request.descriptors[0]) as made:
        assert made.type == socket.SOCK_DGRAM


def test_sockets_of_other_families_are_refused() -> None:
    request = FakeRequest(family=socket.AF_UNIX, kind=socket.SOCK_STREAM, protocol=0)
    with pytest.raises(RequestError, match="family"):
        handle("socket", request)


@pytest.mark.parametrize(
    ("link", "name"), [("kbr0", "accept_source_route"), ("../..", "forwarding"), ("", "forwarding")]
)
def test_other_settings_than_those_of_links_are_refused(link: str, name: str) -> None:
    with pytest.raises(RequestError, match="not a setting"):
        handle("switch", FakeRequest(link=link, name=name, value="1"))


def test_a_supervisor_without_siblings_shares_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "nodes" / "node-1" / "runtime"
    directory.mkdir(parents=True)
    (tmp_path / "nodes" / "node-2" / "runtime").mkdir(parents=True)
    assert network.shared_namespaces(str(directory)) is None


def test_starting_supervisors_of_a_cluster_exclude_each_other(tmp_path: Path) -> None:
    directory = tmp_path / "nodes" / "node-1" / "runtime"
    directory.mkdir(parents=True)
    order: list[str] = []
    with network.exclusive(str(directory)):
        pid = os.fork()
        if pid == 0:
            with network.exclusive(str(directory)):
                (tmp_path / "entered").touch()
            os._exit(0)
        order.append("first" if not (tmp_path / "entered").exists() else "both")
    os.waitpid(pid, 0)
    assert order == ["first"]
    assert (tmp_path / "entered").exists()
    assert sorted(os.listdir(tmp_path / "nodes")) == ["node-1"]
