"""Switches of the kernel, as files."""

import errno
import logging
import os
from pathlib import Path

import pytest

from kedge.node.network import forwarding, network_place
from kedge.node.network.netlink import Netlink
from kedge.testing.network import run_elsewhere

SETTINGS = network_place._LINKS


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


class FakeNetlink:
    """Records settings of links."""

    def __init__(self) -> None:
        self.settings: list[tuple[int, int, int]] = []

    def within(self, _: object) -> "FakeNetlink":
        return self

    def __enter__(self) -> "FakeNetlink":
        return self

    def __exit__(self, *_: object) -> None: ...

    def links(self) -> dict[str, int]:
        return {"lo": 1, "eth0": 2}

    def index(self, name: str) -> int:
        return {"kbr0": 7}[name]

    def set_ipv4(self, index: int, setting: int, value: int) -> None:
        self.settings.append((index, setting, value))


def test_read_only_switches_of_a_container_are_set_by_netlink(
    switches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netlink = FakeNetlink()
    monkeypatch.setattr(forwarding, "Netlink", netlink)
    monkeypatch.setattr(forwarding, "_is_read_only", lambda: True)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(network_place.MachineNetwork, "switch", refuse)
    forwarding.forward_between_pods("kbr0")
    forwarding.reach_loopback("kbr0")
    forwarding.start_forwarding()
    forwarding.stop_forwarding()
    # IPV4_DEVCONF_FORWARDING, _SEND_REDIRECTS and _ROUTE_LOCALNET of linux/ip.h.
    assert netlink.settings == [(7, 1, 1), (7, 6, 0), (7, 26, 1), (1, 1, 1), (2, 1, 1)]
    assert (switches / "ip_forward").read_text() == "0\n"
    assert not (switches / "run").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")
def test_netlink_sets_what_the_files_show() -> None:
    async def check() -> None:
        link, values = "kbr0", dict.fromkeys(forwarding._NUMBERS, 1) | {"send_redirects": 0}
        with Netlink() as netlink:
            netlink.add_bridge(link)
            for name, value in values.items():
                netlink.set_ipv4(netlink.index(link), forwarding._NUMBERS[name], value)
        shown = {name: (SETTINGS / link / name).read_text().strip() for name in values}
        assert shown == {name: str(value) for name, value in values.items()}

    run_elsewhere(check)
