"""Counters of the network."""

import os
from pathlib import Path

from kedge.metrics.series_memory import UNKNOWN
from kedge.node.stats import network
from kedge.node.stats.details import NUMBER, PERIODS

TEXT = b"""\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:  900       9    0    0    0     0          0         0      900       9    0    0    0
  eth0: 1000      10    0    0    0     0          0         0       50       5    0    0    0
 cni0:  7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0
"""


def test_traffic_is_that_of_all_interfaces_but_the_loopback() -> None:
    assert network.traffic(TEXT) == (1007, 58)
    assert network.traffic(TEXT, {b"eth0"}) == (1000, 50)


def test_a_source_fills_in_what_it_reads(tmp_path: Path) -> None:
    (tmp_path / "dev").write_bytes(TEXT)
    source = network.NetworkSource(str(tmp_path / "dev"), lambda: {b"cni0"})
    found = [UNKNOWN] * (PERIODS + 1)
    source.fill(found)
    assert (found[NUMBER["network-receive"]], found[NUMBER["network-transmit"]]) == (7.0, 8.0)
    source.close()
    source.close()


def test_a_network_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "dev").write_bytes(b"a\nb\n eth0: what is this\n")
    for path in (tmp_path / "none", tmp_path / "dev"):
        found = [UNKNOWN] * (PERIODS + 1)
        network.NetworkSource(str(path)).fill(found)
        assert set(found) == {UNKNOWN}


def test_a_process_on_the_machines_own_network_has_none() -> None:
    assert network.of_process(os.getpid()) is None
    assert network.of_process(1 << 22) is None


def test_interfaces_with_a_device_count_else_those_with_a_default_route(tmp_path: Path) -> None:
    (tmp_path / "eth0" / "device").mkdir(parents=True)
    (tmp_path / "cni0").mkdir()
    (tmp_path / "route").write_text("Iface\tDestination\ntun0\t00000000\ntun0\t0000000A\n")
    routes = str(tmp_path / "route")
    assert network.hardware(str(tmp_path), routes) == {b"eth0"}
    assert network.hardware(str(tmp_path / "cni0"), routes) == {b"tun0"}
    assert network.hardware(str(tmp_path / "cni0"), str(tmp_path / "none")) == set()
