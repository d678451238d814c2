"""Switches of the kernel, as files."""

import logging
from pathlib import Path

import pytest

from kedge.node.network import forwarding, network_place


@pytest.fixture
def switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf" / "kbr0").mkdir(parents=True)
    (tmp_path / "ip_forward").write_text("0\n")
    monkeypatch.setattr(network_place, "_LINKS", tmp_path / "conf")
    monkeypatch.setattr(forwarding, "_FORWARDING", tmp_path / "ip_forward")
    monkeypatch.setattr(forwarding, "_BEFORE", tmp_path / "run" / "forwarding")
    return tmp_path


def test_switches_of_a_bridge_are_its_own(switches: Path) -> None:
    forwarding.forward_between_pods("kbr0")
    forwarding.reach_loopback("kbr0")
    found = {path.name: path.read_text() for path in (switches / "conf" / "kbr0").iterdir()}
    assert found == {"forwarding": "1", "send_redirects": "0", "route_localnet": "1"}
    assert (switches / "ip_forward").read_text() == "0\n"


def test_the_machines_switch_is_restored(switches: Path) -> None:
    forwarding.start_forwarding()
    forwarding.start_forwarding()
    assert (switches / "ip_forward").read_text() == "1"
    forwarding.stop_forwarding()
    forwarding.stop_forwarding()
    assert (switches / "ip_forward").read_text() == "0\n"
    assert not (switches / "run").exists()


def test_a_switch_that_cannot_be_set_is_logged(
    switches: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        forwarding.reach_loopback("missing")
    assert "route_localnet" in caplog.text
