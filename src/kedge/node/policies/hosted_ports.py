"""The service ports that programs of the machine serve: the API server's and the DNS server's.

In other clusters pods with well-known labels, or programs of a control plane, serve them. Policies
are written for those, so egress rules that would allow them there allow them here.
"""

from ipaddress import IPv4Address

from kedge.node.network.bridge import DNS_PORT, DNS_SERVICE, SERVICE, SERVICE_PORT
from kedge.node.policies.member_set import HostedPort

_DNS_LABELS = {"k8s-app": "kube-dns"}


def hosted_ports(server: tuple[str, int], dns: IPv4Address | None) -> list[HostedPort]:
    """Return the ports, if the API server is at this address, and the agent's DNS server at this
    one; None if the cluster has another DNS server."""
    host, port = server
    found = [
        HostedPort("default", None, "https", "TCP", SERVICE, SERVICE_PORT, IPv4Address(host), port)
    ]
    if dns is not None:
        for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP")):
            found.append(
                HostedPort(
                    "kube-system", _DNS_LABELS, name, protocol, DNS_SERVICE, DNS_PORT, dns, DNS_PORT
                )
            )
    return found
