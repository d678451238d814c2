"""Drops frames of pods that carry the address of another sender.

A container may have the capability NET_RAW, with which a program sends any frame. Without these
rules it could answer ARP requests for another pod, take its connections, or hide behind its address
from limits. The rules compare each frame with the hardware address and the address of the pod at
this port of the bridge. Frames that are neither IPv4 nor ARP are dropped: pods have no IPv6
address, and would reach what the machine offers on its link-local addresses. IPv4 must be addressed
to the machine, which routes it: frames from pod to pod would pass the network policies.
"""

import contextlib
import logging
from ipaddress import IPv4Address
from typing import Final

from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.network.nftables import batch, expressions
from kedge.node.network.nftables.attributes import BRIDGE
from kedge.node.network.nftables.batch import PREROUTING, Batch, ChainHook, SetSpec
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.nftables.expressions import Rule, rule

log = logging.getLogger(__name__)

_PORTS, _SENDERS = "ports", "senders"
_CHAIN: Final = "guard"
_FIRST: Final = -300
_IPV4, _ARP = 0x0800, 0x0806
_LINK, _HARDWARE, _ADDRESS = 8, 9, 11
"""Registers of a sender. A hardware address takes two."""


class PortGuard:
    """The table of one bridge. It outlives the agent."""

    def __init__(self, name: str, hardware: bytes, namespace: NetworkPlace = MACHINE) -> None:
        self._namespace = namespace
        self._name = name
        self._hardware = hardware
        self._channel: NftablesSocket | None = None

    def open(self) -> None:
        """Take over the table of the previous agent, or write one. Without the feature in the
        kernel, nothing is guarded."""
        channel = NftablesSocket(self._namespace)
        try:
            if self._name not in channel.tables(BRIDGE):
                channel.apply(self._table())
        except OSError as error:
            channel.close()
            log.warning("pods can forge addresses: the kernel refuses rules for bridges: %s", error)
            return
        self._channel = channel

    def _table(self) -> Batch:
        made = Batch(self._name, BRIDGE)
        made.add_table(0)
        made.add_set(_PORTS, SetSpec((batch.LINK,)))
        made.add_set(_SENDERS, SetSpec((batch.LINK, batch.HARDWARE, batch.IPV4)))
        made.add_chain(_CHAIN, ChainHook("filter", PREROUTING, _FIRST))
        made.add_rules(_CHAIN, _rules(self._hardware))
        return made

    def protect(self, port: int, hardware: bytes, address: IPv4Address) -> None:
        """Let a port carry nothing but frames of this sender. Raises OSError."""
        if self._channel is not None:
            change = Batch(self._name, BRIDGE)
            change.add_elements(_SENDERS, {_sender(port, hardware, address): b""})
            change.add_elements(_PORTS, {_index(port): b""})
            self._channel.apply(change)

    def forget(self, port: int, hardware: bytes, address: IPv4Address) -> None:
        """Forget a port that is removed. Idempotent."""
        if self._channel is not None and port:
            change = Batch(self._name, BRIDGE)
            change.delete_elements(_SENDERS, [_sender(port, hardware, address)])
            change.delete_elements(_PORTS, [_index(port)])
            with contextlib.suppress(FileNotFoundError):
                self._channel.apply(change)

    def close(self) -> None:
        """Close the socket; the table stays."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def remove(self) -> None:
        """Remove the table. Idempotent."""
        self.close()
        with (
            contextlib.suppress(OSError),
            contextlib.closing(NftablesSocket(self._namespace)) as channel,
        ):
            if self._name in channel.tables(BRIDGE):
                change = Batch(self._name, BRIDGE)
                change.delete_table()
                channel.apply(change)


def _rules(gateway: bytes) -> list[Rule]:
    frame = expressions.load_input(_LINK) + expressions.load_hardware_source(_HARDWARE)
    is_sender = expressions.is_in_set(_SENDERS, _LINK)
    by_packet = frame + expressions.load_source(_ADDRESS) + is_sender
    by_packet += expressions.is_hardware_destination(gateway)
    in_arp = frame + expressions.load_arp_source(_ADDRESS) + is_sender
    # Receivers of ARP take the sender from its content, not from the frame.
    said = expressions.load_input(_LINK) + expressions.load_arp_hardware_source(_HARDWARE)
    said += expressions.load_arp_source(_ADDRESS) + is_sender
    return [
        rule(
            expressions.load_input(_LINK),
            expressions.is_not_in_set(_PORTS, _LINK),
            expressions.accept(),
        ),
        rule(expressions.is_ether_type(_IPV4), by_packet, expressions.accept()),
        rule(expressions.is_ether_type(_ARP), in_arp, said, expressions.accept()),
        rule(expressions.drop()),
    ]


def _index(port: int) -> bytes:
    return expressions.host_order(port)


def _sender(port: int, hardware: bytes, address: IPv4Address) -> bytes:
    return expressions.key((_index(port), hardware, address.packed))
