"""Which addresses of this machine are for others."""

import socket

import pytest

from kedge.machinery import interfaces
from kedge.machinery.interfaces import address_towards, is_unspecified, own_addresses

TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 6
     |-- 0.0.0.0
        /0 universe UNICAST
Local:
  +-- 0.0.0.0/0 3 0 6
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 169.254.3.4
        /32 host LOCAL
     |-- 192.0.2.2
        /32 host LOCAL
     |-- 192.0.2.255
        /32 link BROADCAST
Main:
     |-- 192.0.2.2
        /32 host LOCAL
"""
TABLE = """\
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
20010db8000000000000000000000002 04 40 00 82     eth0
"""


def test_loopback_broadcast_and_link_local_addresses_are_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = {"fib_trie": TRIE, "if_inet6": TABLE}
    monkeypatch.setattr(interfaces, "_content", tables.__getitem__)
    assert own_addresses() == ["192.0.2.2", "2001:db8::2"]


def test_the_way_to_this_machine_is_its_loopback() -> None:
    assert address_towards("127.0.0.1", 1) == "127.0.0.1"


def test_a_host_that_is_not_there_has_no_way_to_it() -> None:
    with pytest.raises(OSError, match=r"."):
        address_towards("no such host", 1)


@pytest.mark.parametrize(
    ("host", "every"),
    [("0.0.0.0", True), ("::", True), ("127.0.0.1", False), (socket.gethostname(), False)],
)
def test_some_addresses_stand_for_all(host: str, every: bool) -> None:
    assert is_unspecified(host) is every
