"""Sockets in the network namespaces of sandboxes, which a runtime keeps as files."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

from kedge.supervisor.kernel import libc

T = TypeVar("T")


async def made_within(namespace: str, make: Callable[[], T]) -> T:
    """Return what a function makes in a network namespace. Raises OSError."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def enter() -> None:
        # The thread ends in the namespace, and is used for nothing else.
        try:
            descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc.setns(descriptor, libc.NEW_NET)
            finally:
                os.close(descriptor)
            made = make()
        except OSError as error:
            loop.call_soon_threadsafe(_fail, outcome, error)
        else:
            loop.call_soon_threadsafe(outcome.set_result, made)

    threading.Thread(target=enter, name="namespace").start()
    return await asyncio.shield(outcome)


def _fail(outcome: "asyncio.Future[T]", error: OSError) -> None:
    outcome.set_exception(error)


def netlink_socket() -> socket.socket:
    """Return a socket of rtnetlink."""
    return socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    )


def tcp_socket(family: socket.AddressFamily) -> socket.socket:
    """Return a TCP socket that does not block."""
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    made.setblocking(False)
    return made
