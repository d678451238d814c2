"""The host name of a pod, its hosts file and its DNS configuration."""

from collections.abc import Iterator, Sequence
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.runtime.runtime import DnsConfig

HOSTNAME_LENGTH: Final = 63
"""The kernel's limit for a host name."""
DOMAIN: Final = "cluster.local"
_HEADER: Final = "# Kubernetes-managed hosts file.\n"
_HOST_HEADER: Final = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL: Final = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)
_MAX_SERVERS: Final = 3
"""The C library's limit."""
_MAX_SEARCHES: Final = 32
_MAX_SEARCH_LENGTH: Final = 2048
"""Characters of all search paths with the spaces between them."""
_MAX_SEARCH_PATH: Final = 253
"""Some versions of the C library abort on a longer search path."""
_CLUSTER_OPTIONS: Final = ("ndots:5",)


def hostname(pod: Pod) -> str:
    """Return the host name of a pod, without its domain."""
    name = pod.spec.hostnameOverride or pod.spec.hostname or pod.metadata.name
    return name[:HOSTNAME_LENGTH].rstrip("-.")


def domain(pod: Pod) -> str:
    """Return the domain of a pod with a subdomain; empty otherwise."""
    if not pod.spec.subdomain or pod.spec.hostnameOverride:
        return ""
    return f"{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{DOMAIN}"


def kernel_hostname(pod: Pod) -> str:
    """Return the host name inside of the pod; empty if it shares the machine's."""
    if pod.spec.hostNetwork and not pod.spec.hostnameOverride:
        return ""
    if pod.spec.setHostnameAsFQDN and domain(pod):
        return f"{hostname(pod)}.{domain(pod)}"
    return hostname(pod)


def hosts_file(pod: Pod, ips: Sequence[str], machine: str) -> str:
    """Return /etc/hosts of a pod; `machine` is the machine's own file, for pods on its network."""
    if pod.spec.hostNetwork:
        return _HOST_HEADER + machine + "".join(_aliases(pod))
    name, where = hostname(pod), domain(pod)
    names = f"{name}.{where}\t{name}" if where else name
    return _HEADER + _LOCAL + "".join(f"{ip}\t{names}\n" for ip in ips) + "".join(_aliases(pod))


def _aliases(pod: Pod) -> Iterator[str]:
    if pod.spec.hostAliases:
        yield "\n# Entries added by HostAliases.\n"
    for alias in pod.spec.hostAliases:
        names = "\t".join(alias.hostnames)
        yield f"{alias.ip}\t{names}\n"


def resolv_conf(text: str) -> DnsConfig:
    """Return the content of a resolv.conf."""
    servers: list[str] = []
    searches: Sequence[str] = ()
    options: list[str] = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        match words:
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search", *domains]:
                searches = domains
            case ["options", *more]:
                options += more
    return DnsConfig(servers=servers, searches=searches, options=options)


def uses_cluster_dns(pod: Pod) -> bool:
    """Return whether the pod's DNS policy asks for the cluster's DNS server."""
    policy = pod.spec.dnsPolicy or "ClusterFirst"
    if policy == "ClusterFirst":
        return not pod.spec.hostNetwork
    return policy == "ClusterFirstWithHostNet"


def dns_of(pod: Pod, machine: DnsConfig, cluster: str) -> DnsConfig:
    """Return the DNS configuration of a pod. `cluster` is the address of the cluster's DNS server;
    without one, the machine's configuration takes its place, as with a kubelet without
    clusterDNS."""
    base = _base(pod, machine, cluster)
    own = pod.spec.dnsConfig
    if own is None:
        return base
    set_here = {option.name for option in own.options}
    options = [o for o in base.options if o.partition(":")[0] not in set_here]
    options += [o.name if not o.value else f"{o.name}:{o.value}" for o in own.options]
    return DnsConfig(
        servers=_unique([*base.servers, *own.nameservers]),
        searches=_unique([*base.searches, *own.searches]),
        options=options,
    )


def _base(pod: Pod, machine: DnsConfig, cluster: str) -> DnsConfig:
    """Return the configuration of a pod's DNS policy."""
    if pod.spec.dnsPolicy == "None":
        return DnsConfig()
    if not cluster or not uses_cluster_dns(pod):
        return machine
    own = (f"{pod.metadata.namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN)
    return DnsConfig(
        servers=[cluster],
        searches=_unique([*own, *machine.searches]),
        options=_CLUSTER_OPTIONS,
    )


def within_limits(config: DnsConfig) -> tuple[DnsConfig, list[str]]:
    """Return the part of a configuration that resolvers accept, and a warning for each limit that
    it exceeds, in upstream's words."""
    warnings = []
    servers = list(config.servers)[:_MAX_SERVERS]
    if len(servers) < len(config.servers):
        warnings.append(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied"
            f" nameserver line is: {' '.join(servers)}"
        )
    searches = _fitting_searches(config.searches)
    if len(searches) < len(config.searches):
        warnings.append(
            "Search Line limits were exceeded, some search paths have been omitted, the applied"
            f" search line is: {' '.join(searches)}"
        )
    return DnsConfig(servers=servers, searches=searches, options=config.options), warnings


def _fitting_searches(searches: Sequence[str]) -> list[str]:
    found, length = [], -1
    for search in [each for each in searches if len(each) <= _MAX_SEARCH_PATH][:_MAX_SEARCHES]:
        length += 1 + len(search)
        if length > _MAX_SEARCH_LENGTH:
            break
        found.append(search)
    return found


def _unique(items: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(items))
