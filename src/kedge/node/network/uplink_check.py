"""A check of a program for the way out where no node runs, for `kedge doctor`."""

import contextlib
import os
import socket
from ipaddress import IPv4Interface
from typing import NamedTuple

from kedge.machinery.clock import Clock
from kedge.node.network import uplink, uplink_program, uplink_trial
from kedge.node.network.netlink import Netlink
from kedge.node.network.uplink import UplinkRefused
from kedge.node.network.uplink_program import TAP, UplinkNetwork, UplinkProcess


class EmptyNamespace(NamedTuple):
    """A new network namespace: descriptors of it, and of sockets in it."""

    itself: int
    channel: int
    """Of rtnetlink."""
    sockets: list[int]
    """One for each trial."""


async def problem(name: str, inside: EmptyNamespace, clock: Clock) -> str:
    """Return why a program carries nothing out of a namespace; empty if it does. Closes the
    descriptors."""
    with (
        os.fdopen(inside.itself, "rb"),
        Netlink(socket.socket(fileno=inside.channel)) as netlink,
        contextlib.ExitStack() as stack,
    ):
        sockets = [stack.enter_context(socket.socket(fileno=each)) for each in inside.sockets]
        program = uplink_program.find(name)
        if program is None:
            return uplink.NOT_INSTALLED
        try:
            between = uplink.free_network()
            process = await UplinkProcess.start(program, between, inside.itself)
            try:
                await uplink.link_of(process, netlink, clock)
                _route(netlink, between)
                return _trial(sockets)
            finally:
                await process.end()
        except (OSError, UplinkRefused) as error:
            return str(error)


def _route(netlink: Netlink, between: UplinkNetwork) -> None:
    netlink.add_address(netlink.index(TAP), IPv4Interface(between.nodes))
    uplink.route_to_program(netlink, between)


def _trial(sockets: list[socket.socket]) -> str:
    address = uplink_trial.machine_address()
    if not address:
        return uplink.NO_ADDRESS
    trials = zip(uplink.TRIALS, sockets, strict=True)
    found = (trial(each, address) for (_, trial), each in trials)
    return next(filter(None, found), "")
