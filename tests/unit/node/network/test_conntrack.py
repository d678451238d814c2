"""UDP flows as the kernel reports them."""

import struct
from ipaddress import IPv4Address

from kedge.node.network import conntrack
from kedge.node.network.nftables.attributes import attribute, nested


def ends(protocol: int, source: str, source_port: int, target: str, port: int) -> bytes:
    addresses = nested(
        1,
        attribute(1, IPv4Address(source).packed),
        attribute(2, IPv4Address(target).packed),
    )
    ports = attribute(2, struct.pack(">H", source_port)) + attribute(3, struct.pack(">H", port))
    return addresses + nested(2, attribute(1, bytes([protocol])), ports)


def reported(protocol: int) -> bytes:
    forward = ends(protocol, "10.244.0.2", 5000, "10.96.0.10", 53)
    backward = ends(protocol, "10.244.0.9", 5353, "10.244.0.2", 5000)
    return bytes(4) + nested(1, forward) + nested(2, backward) + attribute(12, b"\0\0\0\7")


def test_a_translated_flow_is_read() -> None:
    (flow,) = conntrack.read_flow(reported(17))
    assert (str(flow.source), flow.source_port) == ("10.244.0.2", 5000)
    assert (str(flow.destination), flow.port) == ("10.96.0.10", 53)
    assert (str(flow.answered_by), flow.answered_port) == ("10.244.0.9", 5353)
    assert flow.id == b"\0\0\0\7"


def test_other_protocols_and_damaged_reports_are_skipped() -> None:
    assert list(conntrack.read_flow(reported(6))) == []
    assert list(conntrack.read_flow(bytes(4))) == []
    assert list(conntrack.read_flow(bytes(4) + nested(1, b"") + nested(2, b""))) == []


def test_nothing_is_asked_of_the_kernel_for_no_flows() -> None:
    assert conntrack.delete_flows([]) == 0
