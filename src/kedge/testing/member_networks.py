"""Networks for three members of an etcd cluster that tests cut apart: clients reach each member by
a link of its own, and the members reach each other by a bridge in a namespace of its own."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Final

from kedge.testing.etcd_process import MemberNetwork

_PEERS: Final = "10.232.77"


class MemberNetworks:
    """The networks of some members, as long as the context is open; needs root and `ip`."""

    def __init__(self, count: int) -> None:
        self._name = f"ke{os.getpid() % 100_000}"
        # Those of another run of the tests, at the same time, have other addresses.
        self._clients = f"10.231.{os.getpid() % 250}"
        self.members = [self._member(number) for number in range(1, count + 1)]

    def _member(self, number: int) -> MemberNetwork:
        return MemberNetwork(
            f"{self._clients}.{4 * number + 2}",
            f"{_PEERS}.{number}",
            ("ip", "netns", "exec", f"{self._name}-{number}"),
        )

    @contextlib.contextmanager
    def opened(self) -> Iterator[Sequence[MemberNetwork]]:
        bridge = f"{self._name}-b"
        try:
            _ip("netns", "add", bridge)
            _ip("-n", bridge, "link", "add", "peers", "type", "bridge")
            _ip("-n", bridge, "link", "set", "peers", "up")
            for number, member in enumerate(self.members, 1):
                self._add(number, member, bridge)
            yield self.members
        finally:
            for number in range(1, len(self.members) + 1):
                # A namespace lives on as long as its last socket; the next test has its addresses.
                _ip("link", "delete", f"{self._name}c{number}", check=False)
                _ip("netns", "delete", f"{self._name}-{number}", check=False)
            _ip("netns", "delete", bridge, check=False)

    def _add(self, number: int, member: MemberNetwork, bridge: str) -> None:
        own, link = f"{self._name}-{number}", f"{self._name}c{number}"
        _ip("netns", "add", own)
        _ip("-n", own, "link", "set", "lo", "up")
        _ip("link", "add", link, "type", "veth", "peer", "name", "client", "netns", own)
        _ip("address", "add", f"{self._clients}.{4 * number + 1}/30", "dev", link)
        _ip("link", "set", link, "up")
        _ip("-n", own, "address", "add", f"{member.client_address}/30", "dev", "client")
        _ip("-n", own, "link", "set", "client", "up")
        port = f"m{number}"
        _ip("-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "peer", "netns", own)
        _ip("-n", bridge, "link", "set", port, "master", "peers", "up")
        _ip("-n", own, "address", "add", f"{member.peer_address}/24", "dev", "peer")
        _ip("-n", own, "link", "set", "peer", "up")

    def cut_off(self, number: int) -> None:
        """Cut a member off from the others; clients still reach it."""
        _ip("-n", f"{self._name}-b", "link", "set", f"m{number + 1}", "down")

    def join(self, number: int) -> None:
        _ip("-n", f"{self._name}-b", "link", "set", f"m{number + 1}", "up")


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)
