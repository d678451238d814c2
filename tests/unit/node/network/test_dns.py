import pytest

from kedge.node.network.dns import (
    dns_of,
    hosts_file,
    kernel_hostname,
    resolv_conf,
    uses_cluster_dns,
    within_limits,
)
from kedge.node.runtime.runtime import DnsConfig
from kedge.testing.pods import new_pod

MACHINE = DnsConfig(servers=["9.9.9.9"], searches=["lan"], options=["ndots:1", "edns0"])


def spec(**fields: object) -> dict[str, object]:
    return {"containers": [{"name": "c", "image": "i"}], **fields}


def test_a_pod_is_called_by_its_name() -> None:
    assert kernel_hostname(new_pod()) == "pod"
    assert kernel_hostname(new_pod(spec=spec(hostname="web", subdomain="sub"))) == "web"
    whole = new_pod(spec=spec(hostname="web", subdomain="sub", setHostnameAsFQDN=True))
    assert kernel_hostname(whole) == "web.sub.default.svc.cluster.local"
    assert kernel_hostname(new_pod(spec=spec(hostNetwork=True))) == ""
    assert len(kernel_hostname(new_pod(metadata={"name": "x" * 100}))) == 63


def test_the_hosts_file_knows_the_pod_and_its_aliases() -> None:
    aliases = [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]
    pod = new_pod(spec=spec(hostname="web", subdomain="sub", hostAliases=aliases))
    text = hosts_file(pod, ["10.0.0.1"], "")
    assert text.startswith("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n")
    assert "10.0.0.1\tweb.sub.default.svc.cluster.local\tweb\n" in text
    assert text.endswith("\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n")


def test_a_pod_on_the_machines_network_sees_the_machines_hosts() -> None:
    text = hosts_file(new_pod(spec=spec(hostNetwork=True)), ["10.0.0.1"], "127.0.0.1 x\n")
    assert text == "# Kubernetes-managed hosts file (host network).\n127.0.0.1 x\n"


def test_a_resolv_conf_is_read() -> None:
    text = "# c\nnameserver 1.1.1.1\nsearch a b # x\noptions ndots:5 rotate\n"
    found = DnsConfig(servers=["1.1.1.1"], searches=["a", "b"], options=["ndots:5", "rotate"])
    assert resolv_conf(text) == found


CLUSTER = "10.96.0.10"
SEARCHES = ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"]
FROM_CLUSTER = DnsConfig(servers=[CLUSTER], searches=[*SEARCHES, "lan"], options=("ndots:5",))


@pytest.mark.parametrize(
    ("policy", "host_network", "found"),
    [
        (None, False, FROM_CLUSTER),
        ("ClusterFirst", False, FROM_CLUSTER),
        ("ClusterFirst", True, MACHINE),
        ("ClusterFirstWithHostNet", False, FROM_CLUSTER),
        ("ClusterFirstWithHostNet", True, FROM_CLUSTER),
        ("Default", False, MACHINE),
        ("None", False, DnsConfig()),
        ("None", True, DnsConfig()),
    ],
)
def test_each_policy(policy: str | None, host_network: bool, found: DnsConfig) -> None:
    chosen = {} if policy is None else {"dnsPolicy": policy}
    pod = new_pod(spec=spec(hostNetwork=host_network, **chosen))
    assert dns_of(pod, MACHINE, CLUSTER) == found
    assert uses_cluster_dns(pod) == (found == FROM_CLUSTER)


def test_without_a_cluster_dns_server_pods_use_the_machines() -> None:
    assert dns_of(new_pod(), MACHINE, "") == MACHINE
    assert dns_of(new_pod(spec=spec(dnsPolicy="None")), MACHINE, "") == DnsConfig()


def test_a_pods_own_dns_settings_are_added() -> None:
    own = {
        "nameservers": ["1.1.1.1", CLUSTER],
        "searches": ["x", "lan"],
        "options": [
            {"name": "ndots", "value": "3"},
            {"name": "rotate"},
            {"name": "y", "value": ""},
        ],
    }
    found = dns_of(new_pod(spec=spec(dnsConfig=own)), MACHINE, CLUSTER)
    assert found.servers == [CLUSTER, "1.1.1.1"]
    assert found.searches == [*SEARCHES, "lan", "x"]
    assert found.options == ["ndots:3", "rotate", "y"]
    default = dns_of(new_pod(spec=spec(dnsConfig=own, dnsPolicy="Default")), MACHINE, CLUSTER)
    assert default.servers == ["9.9.9.9", "1.1.1.1", CLUSTER]
    assert default.options == ["edns0", "ndots:3", "rotate", "y"]
    alone = dns_of(new_pod(spec=spec(dnsConfig=own, dnsPolicy="None")), MACHINE, CLUSTER)
    assert (alone.servers, alone.searches) == (["1.1.1.1", CLUSTER], ["x", "lan"])


def test_a_configuration_within_the_limits_is_not_changed() -> None:
    fits = DnsConfig(
        servers=["1.1.1.1"] * 3, searches=[f"{n:063}" for n in range(32)], options=["a"]
    )
    assert within_limits(fits) == (fits, [])


@pytest.mark.parametrize(
    ("searches", "left"),
    [
        ([f"s{n}" for n in range(33)], [f"s{n}" for n in range(32)]),
        (["x" * 254, "a"], ["a"]),
        ([str(n) * 200 for n in range(12)][:11], [str(n) * 200 for n in range(10)]),
    ],
)
def test_search_paths_beyond_the_limits(searches: list[str], left: list[str]) -> None:
    found, [warning] = within_limits(DnsConfig(searches=searches))
    assert found.searches == left
    assert warning == (
        "Search Line limits were exceeded, some search paths have been omitted, the applied search"
        f" line is: {' '.join(left)}"
    )


def test_servers_beyond_the_limit() -> None:
    found, [warning] = within_limits(
        DnsConfig(servers=["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"])
    )
    assert found.servers == ["1.1.1.1", "2.2.2.2", "3.3.3.3"]
    assert warning == (
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied"
        " nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3"
    )
