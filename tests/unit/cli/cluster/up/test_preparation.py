from pathlib import Path

import msgspec
import pytest

from kedge.apiserver import pki
from kedge.apiserver.config import ServerConfig
from kedge.cli.cluster.state import ClusterRecord
from kedge.cli.cluster.up.preparation import help_along

NEW = ClusterRecord(name="blue")


@pytest.fixture
def server(tmp_path: Path) -> ServerConfig:
    return ServerConfig(state=tmp_path, name="blue", port=0, local_nodes={"n1": "127.0.0.1"})


def keys(server: ServerConfig) -> set[str]:
    return {str(each.relative_to(server.state)) for each in server.state.rglob("*.key")}


def test_the_keys_of_a_new_cluster_are_those_that_its_server_finds(server: ServerConfig) -> None:
    help_along(server, NEW)
    assert {"pki/ca.key", "pki/server.key", "nodes/n1/pki/node.key"} <= keys(server)
    made = (server.pki / "server.crt").read_bytes(), (server.pki / "ca.key").read_bytes()
    pki.ensure(server.pki, [server.host])
    assert ((server.pki / "server.crt").read_bytes(), (server.pki / "ca.key").read_bytes()) == made


@pytest.mark.parametrize("trace", [{"port": 7001}, {"kept": ("pki/ca.key",)}])
def test_lost_keys_of_a_cluster_that_has_run_are_not_replaced(
    trace: dict[str, object], server: ServerConfig
) -> None:
    help_along(server, msgspec.structs.replace(NEW, **trace))
    assert keys(server) == set()


def test_the_server_reports_what_is_wrong_with_the_directory(server: ServerConfig) -> None:
    server.pki.write_text("a file")
    help_along(server, NEW)
    assert server.pki.read_text() == "a file"
