"""The table of a node; tests/contract/test_service_datapath.py sends packets through it."""

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network

import pytest

from kedge.node.network import ruleset
from kedge.node.network.netlink import Netlink
from kedge.node.network.nftables.attributes import read_attributes, read_items, text
from kedge.node.network.nftables.batch import Batch
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.node_table import NodeTable, host_port_element
from kedge.node.network.ruleset import EMPTY, ServerLimit, TableScope
from kedge.testing.network import run_elsewhere

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")


def scope(number: int) -> TableScope:
    return TableScope(
        link=f"kbr{number}",
        links="kbr",
        network=IPv4Network(f"10.244.{number}.0/24"),
        gateway=IPv4Address(f"10.244.{number}.1"),
        pods=IPv4Network("10.244.0.0/16"),
        services=(IPv4Network("10.96.0.0/16"),),
        owns_machine=False,
    )


def set_keys(channel: NftablesSocket, table: str, name: str) -> set[bytes]:
    """The elements of a set, as the kernel has them."""
    asked = channel._dump(13, text(1, table) + text(2, name))
    elements = [item for part in asked for _, item in read_items(part.get(3, b""))]
    return {read_attributes(read_attributes(each)[1])[1] for each in elements}


def with_links(work: Callable[[NodeTable, NodeTable], Awaitable[None]]) -> None:
    """Run a test with two tables and their bridges."""

    async def inside() -> None:
        tables = NodeTable(scope(1)), NodeTable(scope(2))
        with Netlink() as netlink:
            for each in tables:
                netlink.add_bridge(each.scope.link)
                netlink.raise_link(netlink.index(each.scope.link))
        try:
            await work(*tables)
        finally:
            for each in tables:
                each.remove()

    run_elsewhere(inside)


@needs_root
def test_the_machines_packets_belong_to_the_first_table() -> None:
    async def work(one: NodeTable, two: NodeTable) -> None:
        await one.open()
        await two.open()
        assert one.scope.owns_machine
        assert not two.scope.owns_machine
        assert not one.must_change_owner()
        assert not two.must_change_owner()
        with Netlink() as netlink:
            assert netlink.routes()[one.scope.services[0]] == netlink.index("kbr1")

    with_links(work)


@needs_root
def test_a_route_of_another_cluster_is_left_alone() -> None:
    async def work(one: NodeTable, _: NodeTable) -> None:
        with Netlink() as netlink:
            netlink.add_bridge("vpn")
            netlink.raise_link(netlink.index("vpn"))
            netlink.add_link_route(netlink.index("vpn"), one.scope.services[0])
        await one.open()
        assert not one.scope.owns_machine
        assert not one.must_change_owner()

    with_links(work)


@needs_root
def test_host_ports_survive_a_rewrite_and_a_failure() -> None:
    async def work(one: NodeTable, _: NodeTable) -> None:
        element = host_port_element("", "TCP", 80, IPv4Address("10.244.1.2"), 8080)
        await one.open_host_ports(dict([element]))
        await one.open()
        await one.open_host_ports(dict([element]))
        await one.rewrite(lambda: EMPTY)
        await one.close_host_ports([element[0], b"unknown"])
        await one.open_host_ports(dict([element]))
        broken = Batch("kbr1")
        broken.delete_chain("missing")
        with pytest.raises(OSError, match="No such file"):
            await one.apply(lambda name: broken)

    with_links(work)


@needs_root
def test_a_removed_table_is_gone() -> None:
    async def work(one: NodeTable, two: NodeTable) -> None:
        await one.open()
        one.remove()
        one.remove()
        channel = NftablesSocket()
        assert channel.tables() == []
        channel.close()
        assert not two.must_change_owner(), "it is not open"

    with_links(work)


@needs_root
@pytest.mark.parametrize(
    "lacking", [b"\x09\0\x01\0kbr1\0\0\0\0\x08\0\x02\0\0\0\0\x06", b"connlimit"]
)
def test_kernels_that_lack_a_feature_get_a_table_without_it(
    lacking: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = NftablesSocket.apply

    def refuse(channel: NftablesSocket, batch: Batch) -> None:
        if lacking in batch.packed():
            raise OSError(errno.EOPNOTSUPP, "not supported")
        applied(channel, batch)

    monkeypatch.setattr(NftablesSocket, "apply", refuse)

    async def work(one: NodeTable, _: NodeTable) -> None:
        limit = ServerLimit(IPv4Address("10.96.0.1"), 443, 256)
        one.scope = one.scope._replace(server_limit=limit)
        await one.open()
        assert (one.scope.server_limit is None) is (lacking == b"connlimit")
        with contextlib.closing(NftablesSocket()) as channel:
            assert channel.tables() == ["kbr1"]

    with_links(work)


@needs_root
def test_a_kernel_that_refuses_everything_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(channel: NftablesSocket, batch: Batch) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    async def work(one: NodeTable, _: NodeTable) -> None:
        monkeypatch.setattr(NftablesSocket, "apply", refuse)
        with pytest.raises(OSError, match="not supported"):
            await one.open()

    with_links(work)


@needs_root
def test_peers_are_kept_when_the_table_is_written_anew() -> None:
    async def work(one: NodeTable, two: NodeTable) -> None:
        def peers() -> set[bytes]:
            with contextlib.closing(NftablesSocket()) as channel:
                return set_keys(channel, one.scope.link, ruleset.TUNNEL_PEERS)

        here, there = bytes(range(8)), bytes(range(8, 16))
        await one.open()
        await one.set_peers({ruleset.TUNNEL_PEERS: frozenset((here, there))})
        assert peers() == {here, there}
        await one.set_peers({ruleset.TUNNEL_PEERS: frozenset((there,))})
        assert peers() == {there}
        await one.rewrite(lambda: EMPTY)
        assert peers() == {there}

    with_links(work)
