"""How the server finds the agents of nodes."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver import pki
from kedge.apiserver.agents import Agents
from kedge.machinery.errors import StatusError


def node(*addresses: tuple[str, str], port: int = 0) -> dict[str, Any]:
    status = {
        "addresses": [{"type": kind, "address": address} for kind, address in addresses],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    return {"metadata": {"name": "box"}, "status": status}


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    pki.ensure(tmp_path, [])
    pki.ensure_node(tmp_path, "box", ["box"], tmp_path / "box", datetime(2030, 1, 1, tzinfo=UTC))
    return Agents(tmp_path)


def test_an_agent_is_dialled_at_its_address_and_verified_by_its_name(agents: Agents) -> None:
    found = agents.address(
        node(("Hostname", "box"), ("InternalIP", "10.244.0.1"), ("InternalIP", "fd00::1"), port=7)
    )
    assert (found.host, found.port, found.server_name) == ("10.244.0.1", 7, "box")
    assert found.tls is not None


def test_without_a_name_the_address_is_verified(agents: Agents) -> None:
    found = agents.address(node(("ExternalIP", "192.0.2.1")))
    assert (found.host, found.port, found.server_name) == ("192.0.2.1", 10250, None)


def test_a_node_without_addresses_cannot_be_called(agents: Agents) -> None:
    with pytest.raises(StatusError, match="no preferred addresses found"):
        agents.address(node())
