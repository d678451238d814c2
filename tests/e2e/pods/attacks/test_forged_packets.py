"""A program of a pod that forges packets."""

import ipaddress
import socket
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("full_level")

FORGE = """exec python3 - <<'END'
import socket, struct
def datagram(source, port):
    udp = struct.pack(">HHHH", 999, port, 8 + len(source), 0) + source.encode()
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    return head + socket.inet_aton(source) + socket.inet_aton("{gateway}") + udp
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for source in {sources!r}:
    for _ in range(3):
        raw.sendto(datagram(source, {port}), ("{gateway}", {port}))
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(3):
    plain.sendto(b"own", ("{gateway}", {port}))
print("sent")
END"""


def test_a_pod_cannot_send_from_the_address_of_others(pods: Any, node: Any) -> None:
    network = ipaddress.ip_network(node["spec"]["podCIDR"])
    gateway = str(network[1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((gateway, 0))
        listener.settimeout(10)
        port = listener.getsockname()[1]
        sources = [str(network[200]), gateway, "127.0.0.2", "8.8.8.8", "10.244.99.9"]
        script = FORGE.format(gateway=gateway, port=port, sources=sources)
        assert pods.says("forger", script) == "sent"
        seen = set()
        while True:
            try:
                content, (address, _) = listener.recvfrom(100)
            except TimeoutError:
                break
            seen.add((content, ipaddress.ip_address(address) in network))
            listener.settimeout(1)
    assert seen == {(b"own", True)}
