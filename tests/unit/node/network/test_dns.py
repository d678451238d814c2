from kedge.node.network.dns import dns_of, hosts_file, kernel_hostname, resolv_conf
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


def test_a_pods_own_dns_settings_are_added() -> None:
    own = {
        "nameservers": ["1.1.1.1", "9.9.9.9"],
        "searches": ["x"],
        "options": [{"name": "ndots", "value": "3"}, {"name": "rotate"}],
    }
    found = dns_of(new_pod(spec=spec(dnsConfig=own)), MACHINE)
    assert found.servers == ["1.1.1.1", "9.9.9.9"]
    assert found.searches == ["lan", "x"]
    assert found.options == ["edns0", "ndots:3", "rotate"]
    alone = dns_of(new_pod(spec=spec(dnsConfig=own, dnsPolicy="None")), MACHINE)
    assert alone.searches == ["x"]
