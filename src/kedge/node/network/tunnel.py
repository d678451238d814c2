"""The VXLAN tunnels between machines: their numbers, and where a packet carries what.

Each node has its own VXLAN link with its own number (VNI), which derives from its pod network. A
sender uses the number of the receiving node, so packets of several nodes and clusters of one
machine never mix. Nothing is learnt and nothing is flooded: every peer has a fixed entry.
"""

from ipaddress import IPv4Network
from typing import Final

PORT: Final = 14789
"""The UDP port of all tunnels. Not that of VXLAN itself (4789) or of flannel (8472): the kernel
would mix their packets with ours."""
OVERHEAD: Final = 50
"""The bytes that a tunnel adds to a packet: Ethernet, IPv4, UDP and VXLAN headers."""
LINKS: Final = "kvx"
"""The prefix of the tunnels of all nodes, of all users."""

UDP: Final = 17
IPV4: Final = b"\x08\x00"
"""The type of an Ethernet frame that holds an IPv4 packet."""
NUMBER_AT, TYPE_AT, SOURCE_AT, DESTINATION_AT = 12, 28, 42, 46
"""Offsets from the UDP header: the VNI, and type, source and destination of the inner packet."""

_NUMBERS: Final = 0x6B0000


def number(network: IPv4Network) -> int:
    """Return the VNI of the node with this pod network. No two nodes of a machine or of a cluster
    have the same network."""
    return _NUMBERS + int.from_bytes(network.network_address.packed[1:3], "big")


def hardware_address(network: IPv4Network) -> bytes:
    """Return the address of the tunnel of the node with this pod network; the bit for local
    administration is set."""
    return b"\x02\x6b" + network.network_address.packed
