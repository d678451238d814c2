import socket

import pytest

from kedge.node.runtime.cri.namespace_sockets import made_within, netlink_socket, tcp_socket


async def test_a_namespace_that_is_gone_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await made_within("/run/netns/none", netlink_socket)


def test_sockets_do_not_block() -> None:
    with tcp_socket(socket.AF_INET) as made:
        assert not made.getblocking()
    with netlink_socket() as made:
        assert made.family == socket.AF_NETLINK
