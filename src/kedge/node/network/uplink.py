"""The link from the network of an ordinary user's nodes to the outside, by pasta or slirp4netns.

    pods - bridge - [nodes' namespace] kuplink - kinside [uplink namespace] koutside - program

Packets take it while the nodes' namespace has a route to it; without the route, packet rules send
them to the forwarder (kedge.node.network.way_out). The route ends with the uplink namespace, and
that with the program and this process, so nothing has to be cleaned up after a kill.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final, NamedTuple, Protocol

from kedge.machinery.clock import Clock
from kedge.node.network import uplink_program, uplink_trial, way_out
from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import USER_MTU, NetworkPlace
from kedge.node.network.ruleset import UPLINK
from kedge.node.network.uplink_program import (
    PASTA,
    SLIRP4NETNS,
    TAP,
    UplinkNetwork,
    UplinkProcess,
    UplinkProgram,
)
from kedge.node.runtime.runtime import RuntimeFailure

log = logging.getLogger(__name__)

ANNOTATION: Final = "kedge.dev/way-out"
FORWARDER: Final = "forwarder"
SHARED: Final = "uplink of another node"
"""The annotation of a node whose machine has an uplink already: the nodes of a cluster share it."""
AUTO: Final = "auto"
ORDER: Final = (SLIRP4NETNS, PASTA)
"""The faster one first, as measured with the versions of Debian 12 (docs/without-root.md)."""
CHECK_SECONDS: Final = 30.0
"""Seconds between two checks of a program that runs: it may hang."""
AGAIN_SECONDS: Final = 1.0
"""Seconds after which a program that worked is started again."""
RETRY_SECONDS: Final = 60.0
"""Seconds after which programs that do not work are tried again: the machine may have got an
address."""
NOT_INSTALLED: Final = "not installed"
NO_ADDRESS: Final = "this machine has no address besides loopback"
TRIALS: Final = (
    (socket.SOCK_DGRAM, uplink_trial.datagram_problem),
    (socket.SOCK_STREAM, uplink_trial.connection_problem),
    (socket.SOCK_STREAM, uplink_trial.refusal_problem),
)
"""Each with the kind of its socket. The last one tells whether a program is as good as the
forwarder."""
_MISSES: Final = 2
_START_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.02
_INNER: Final = "kinside"
_NETWORKS: Final = tuple(map(IPv4Network, ("198.51.100.0/24", "203.0.113.0/24", "192.0.2.0/24")))
"""Networks that no machine should have (RFC 5737)."""


class UplinkMaker(Protocol):
    """Makes namespaces for programs. Raises RuntimeFailure."""

    async def uplink_namespace(self) -> list[int]:
        """Return descriptors of a new network namespace and of a socket of rtnetlink in it."""
        ...


class UplinkEnd(NamedTuple):
    """Why a program carries nothing."""

    why: str
    has_worked: bool = False
    may_work_later: bool = True


class UplinkRefused(Exception):
    """A program does not work here."""


class UplinkShared(Exception):
    """Another node of the cluster has an uplink, which serves all."""


def wanted(setting: str) -> Sequence[str]:
    """Return the names of the programs to try."""
    if setting == AUTO:
        return ORDER
    return () if setting == FORWARDER else (setting,)


class Uplink:
    """Keeps one program running that works. The owner must `run` it."""

    def __init__(
        self,
        network: NetworkPlace,
        maker: UplinkMaker,
        programs: Sequence[str],
        clock: Clock,
        report: Callable[[str], None],
        *,
        is_demanding: bool = True,
    ) -> None:
        """`report` gets the value of the Node's annotation. Unless `is_demanding`, a program may be
        worse than the forwarder."""
        self._network = network
        self._maker = maker
        self._programs = programs
        self._clock = clock
        self._report = report
        self._trials = TRIALS if is_demanding else TRIALS[:-1]

    async def run(self) -> None:
        """Run until cancelled, or until it is known that nothing ever works."""
        while True:
            ends: dict[str, UplinkEnd] = {}
            try:
                await self._carry_by_first(ends)
                self._report(forwarded(ends))
            except UplinkShared:
                self._report(SHARED)
                await self._clock.sleep(RETRY_SECONDS)
                continue
            if not any(each.may_work_later for each in ends.values()):
                return
            has_worked = any(each.has_worked for each in ends.values())
            await self._clock.sleep(AGAIN_SECONDS if has_worked else RETRY_SECONDS)

    async def _carry_by_first(self, ends: dict[str, UplinkEnd]) -> None:
        """Carry packets by the first program that works, as long as it works; collects the ends of
        programs."""
        for name in self._programs:
            ends[name] = await self._carry(name)
            log.info("way out program=%s %s", name, ends[name].why)
            if ends[name].has_worked:
                return

    async def _carry(self, name: str) -> UplinkEnd:
        """Carry packets by a program as long as it works."""
        program = uplink_program.find(name)
        if program is None:
            return UplinkEnd(NOT_INSTALLED, may_work_later=False)
        if lack := uplink_program.lack_of_device():
            return UplinkEnd(lack)
        try:
            async with self._started(program) as process:
                await self._try()
                self._report(name)
                log.info("way out program=%s works", name)
                return UplinkEnd(await self._watched(process), has_worked=True)
        except (OSError, UplinkRefused, RuntimeFailure) as error:
            return UplinkEnd(str(error))

    @contextlib.asynccontextmanager
    async def _started(self, program: UplinkProgram) -> AsyncIterator[UplinkProcess]:
        """Start a program and connect its link with the nodes' namespace."""
        between = free_network()
        namespace, channel = await self._maker.uplink_namespace()
        with (
            os.fdopen(namespace, "rb"),
            Netlink(socket.socket(fileno=channel)) as outer,
            Netlink.within(self._network) as nodes,
        ):
            try:
                nodes.add_pair(UPLINK, _INNER, f"/proc/self/fd/{namespace}", 0, mtu=USER_MTU)
            except FileExistsError:
                raise UplinkShared from None
            process = await UplinkProcess.start(program, between, namespace)
            try:
                await link_of(process, outer, self._clock)
                _route_outside(outer, between)
                _route_nodes(nodes, between)
                self._network.switch(UPLINK, "forwarding", "1")
                yield process
            finally:
                await process.end()
                nodes.remove_link(UPLINK)

    async def _try(self) -> None:
        """Raise UplinkRefused unless all trials succeed."""
        for kind, trial in self._trials:
            if problem := await asyncio.to_thread(self._problem, kind, trial):
                raise UplinkRefused(problem)

    def _problem(self, kind: int, trial: Callable[[socket.socket, str], str]) -> str:
        address = uplink_trial.machine_address()
        if not address:
            return NO_ADDRESS
        with self._network.socket(socket.AF_INET, kind) as inner:
            # The rules of the output chain then leave it alone, whatever the routes are.
            inner.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, UPLINK.encode())
            return trial(inner, address)

    async def _watched(self, process: UplinkProcess) -> str:
        """Return why a program no longer works, once that is so."""
        misses = 0
        while True:
            await process.wait(CHECK_SECONDS)
            if process.end_reason:
                return process.end_reason
            trial = uplink_trial.datagram_problem
            problem = await asyncio.to_thread(self._problem, socket.SOCK_DGRAM, trial)
            misses = misses + 1 if problem else 0
            if misses == _MISSES:
                return problem


def forwarded(ends: dict[str, UplinkEnd]) -> str:
    """Return the annotation of a node whose agent forwards."""
    why = "; ".join(f"{name}: {end.why}" for name, end in ends.items())
    return f"{FORWARDER} ({why})" if why else FORWARDER


def free_network() -> UplinkNetwork:
    """Return a network to which this machine has no route."""
    with Netlink() as netlink:
        used = list(netlink.networks())
    for each in _NETWORKS:
        if not any(each.overlaps(other) for other in used):
            return UplinkNetwork(each)
    raise UplinkRefused("no network is free for it")


async def link_of(process: UplinkProcess, outer: Netlink, clock: Clock) -> None:
    """Wait for the link of a program."""
    for _ in range(round(_START_SECONDS / _LOOK_SECONDS)):
        if outer.index(TAP):
            return
        if reason := process.end_reason:
            raise UplinkRefused(reason)
        await clock.sleep(_LOOK_SECONDS)
    raise UplinkRefused("it makes no link")


def route_to_program(outer: Netlink, between: UplinkNetwork) -> None:
    """Route to a program from the namespace of its link, which has an address."""
    tap = outer.index(TAP)
    outer.set_mtu(tap, USER_MTU)
    outer.raise_link(tap)
    outer.add_link_route(tap, IPv4Network(between.gateway))
    outer.add_default_route(tap, IPv4Address(between.gateway))


def _route_outside(outer: Netlink, between: UplinkNetwork) -> None:
    """Route from the nodes to the program, and nowhere else."""
    inner = outer.index(_INNER)
    outer.add_address(outer.index(TAP), IPv4Interface(between.router))
    outer.raise_link(inner)
    outer.add_link_route(inner, IPv4Network(between.nodes))
    route_to_program(outer, between)
    for network in way_out.REFUSED:
        outer.add_unreachable_route(network)


def _route_nodes(nodes: Netlink, between: UplinkNetwork) -> None:
    """Route from the nodes' namespace to the uplink."""
    link = nodes.index(UPLINK)
    nodes.add_address(link, IPv4Interface(between.nodes))
    nodes.add_link_route(link, IPv4Network(between.router))
    with contextlib.suppress(FileExistsError):
        # Addresses of the program itself are none of the outside.
        nodes.add_unreachable_route(between.network)
    nodes.add_default_route(link, IPv4Address(between.router))
