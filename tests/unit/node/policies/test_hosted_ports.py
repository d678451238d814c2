"""The service ports of programs of the machine."""

from ipaddress import IPv4Address

from kedge.node.policies.hosted_ports import hosted_ports


def test_dns_is_hosted_unless_the_cluster_has_another_server() -> None:
    server, *names = hosted_ports(("127.0.0.1", 6443), IPv4Address("10.244.0.1"))
    assert (str(server.address), server.port, str(server.target)) == ("10.96.0.1", 443, "127.0.0.1")
    assert [(each.name, each.protocol, each.target_port) for each in names] == [
        ("dns", "UDP", 53),
        ("dns-tcp", "TCP", 53),
    ]
    assert len(hosted_ports(("127.0.0.1", 6443), None)) == 1
