"""The configuration of an API server, and the settings that it is made from."""

from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from socket import gethostname
from typing import Annotated, Final
from uuid import NAMESPACE_URL, uuid5

import msgspec

from kedge.machinery.quantity import Quantity
from kedge.machinery.service_range import SERVICE_RANGE
from kedge.settings import cluster, parse, values
from kedge.settings.device_access import DeviceAccessRule
from kedge.settings.published_port import INGRESS_PORTS, PublishedPort
from kedge.settings.service_defaults import LOAD_BALANCER_NETWORK, NODE_PORTS
from kedge.settings.setting import Setting

ADMISSION_PLUGINS: Final = (
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PodGroupProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    "PodTopologyLabels",
    "PodGroupWorkloadExists",
    "NodeDeclaredFeatureValidator",
    "JobValidation",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
)
"""The admission plugins that can be asked for."""

INACTIVE_ADMISSION: Final = (
    "PodGroupProtection",
    "ClusterTrustBundleAttest",
    "PodGroupWorkloadExists",
    "JobValidation",
)
"""Plugins without an effect: Kubernetes has them on and their features off by default, and kedge
does not have these features."""

POLICY_STATUS: Final = "validatingadmissionpolicy-status-controller"
"""The only controller that is a part of the server: it needs the compiler of expressions."""
UPSTREAM_ADMISSION: Final = tuple(
    name for name in ADMISSION_PLUGINS if name != "DenyServiceExternalIPs"
)
"""The default plugins of a cluster: upstream's, and NodeRestriction as installers add it."""

SERVER_ADMISSION: Final = ("NamespaceLifecycle",)
"""The default plugins of a server by itself: namespaces mean nothing without this one."""

HOST: Final = Setting("host", values.ADDRESS, "address to listen on")
METRICS_RESOLUTION: Final = Setting(
    "metrics-resolution", values.RESOLUTION, "how often kubelets are read, from 10s on"
)
METRICS_WINDOW: Final = Setting(
    "metrics-window", values.USAGE_WINDOW, "the window that kubectl top and autoscalers see"
)


_MACHINE_ID: Final = Path("/etc/machine-id")


class ServingFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates that the starter of a server brings along (kedge.cli.envtest)."""

    certificate: Path | None = None
    """Served instead of the cluster's own; None for that."""
    key: Path | None = None
    client_authority: Path | None = None
    """An authority whose certificates identify clients, besides the cluster's own."""


class KubeletTrust(msgspec.Struct, frozen=True, kw_only=True):
    """How the certificates of kubelets that report no usage by themselves are verified."""

    authority: Annotated[
        Path | None,
        Setting(
            "kubelet-certificate-authority",
            values.FILE,
            "certificate authority of the kubelets whose usage is read",
            default="the cluster's authority",
        ),
    ] = None
    anybody: Annotated[
        bool,
        Setting(
            "kubelet-insecure-tls",
            values.SWITCH,
            "do not verify the certificates of these kubelets",
            default="verify them",
        ),
    ] = False


class RequestHeaderTrust(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticating proxies that are believed, and the headers in which they name users."""

    authority: Annotated[
        Path | None,
        Setting(
            "requestheader-client-ca-file",
            values.FILE,
            "certificate authority of proxies that authenticate users and name them in headers",
            default="no such proxies",
        ),
    ] = None
    allowed_names: Annotated[
        tuple[str, ...],
        Setting(
            "requestheader-allowed-names",
            values.LIST,
            "the common names that a proxy's certificate may have, comma-separated",
            default="any",
        ),
    ] = ()
    users: Annotated[
        tuple[str, ...],
        Setting(
            "requestheader-username-headers",
            values.LIST,
            "the headers in which a proxy names the user, the first one that is not empty",
        ),
    ] = ("X-Remote-User",)
    uids: Annotated[
        tuple[str, ...],
        Setting(
            "requestheader-uid-headers",
            values.LIST,
            "the headers in which a proxy sends the user's uid",
        ),
    ] = ("X-Remote-Uid",)
    groups: Annotated[
        tuple[str, ...],
        Setting(
            "requestheader-group-headers",
            values.LIST,
            "the headers in which a proxy names the user's groups, one in each",
        ),
    ] = ("X-Remote-Group",)
    extra_prefixes: Annotated[
        tuple[str, ...],
        Setting(
            "requestheader-extra-headers-prefix",
            values.LIST,
            "the beginnings of headers in which a proxy sends extra fields of the user",
        ),
    ] = ("X-Remote-Extra-",)


class EtcdFiles(msgspec.Struct, frozen=True, kw_only=True):
    """How the server and an etcd prove to each other who they are."""

    authority: Annotated[
        Path | None,
        Setting(
            "etcd-cafile",
            values.FILE,
            "certificate authority of the members of etcd",
            default="no TLS",
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        Setting("etcd-certfile", values.FILE, "certificate of the server for etcd", default="none"),
    ] = None
    key: Annotated[
        Path | None,
        Setting("etcd-keyfile", values.FILE, "key of that certificate", default="none"),
    ] = None
    credentials: Annotated[
        Path | None,
        Setting(
            "etcd-credentials-file",
            values.FILE,
            "file with USER:PASSWORD for an etcd with authentication, in one line",
            default="none",
        ),
    ] = None


class PostgresFiles(msgspec.Struct, frozen=True, kw_only=True):
    """How the server and a PostgreSQL prove to each other who they are."""

    authority: Annotated[
        Path | None,
        Setting(
            "postgresql-cafile",
            values.FILE,
            "certificate authority of the servers of PostgreSQL",
            default="no TLS",
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        Setting(
            "postgresql-certfile",
            values.FILE,
            "certificate of the server for PostgreSQL",
            default="none",
        ),
    ] = None
    key: Annotated[
        Path | None,
        Setting("postgresql-keyfile", values.FILE, "key of that certificate", default="none"),
    ] = None
    password: Annotated[
        Path | None,
        Setting(
            "postgresql-password-file",
            values.FILE,
            "file with the password of the user of PostgreSQL, read for each connection",
            default="none",
        ),
    ] = None


class SimulationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated nodes that a cluster has from its start."""

    nodes: Annotated[
        int,
        Setting(
            "simulated-nodes",
            values.SIMULATED_NODES,
            "how many nodes to simulate: their pods are pretended, and behave as annotations say",
        ),
    ] = 0
    resources: Annotated[
        Mapping[str, Quantity],
        Setting(
            "simulated-node-resources",
            values.AMOUNTS,
            "resources of each simulated node, such as cpu=8,example.com/gpu=4",
            default="cpu=32,memory=256Gi,ephemeral-storage=1Ti,pods=110",
        ),
    ] = {}
    taint: Annotated[
        str,
        Setting(
            "simulated-node-taint",
            values.TAINT_MODE,
            "whether simulated nodes have a taint, so that only pods which tolerate it are"
            " pretended; auto if the cluster is started with other nodes, too",
        ),
    ] = "auto"


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one server; its settings are the flags of `kedge server`."""

    name: Annotated[str, cluster.NAME] = cluster.DEFAULT_NAME
    state: Annotated[Path, cluster.STATE]
    host: Annotated[str, HOST] = "127.0.0.1"
    port: Annotated[int, Setting("port", values.PORT, "port to listen on, 0 for any free one")] = (
        6443
    )
    hosts: Annotated[
        tuple[str, ...],
        Setting(
            "cert-hosts",
            values.LIST,
            "further host names and addresses for the serving certificate, comma-separated",
        ),
    ] = ()
    store: Annotated[
        str,
        Setting(
            "store",
            values.STORE,
            "where objects are kept: in a SQLite file, in memory and lost with the server, or in an"
            " etcd with these members, or in a PostgreSQL database",
        ),
    ] = "sqlite"
    etcd: EtcdFiles = EtcdFiles()
    postgresql: PostgresFiles = PostgresFiles()
    servers: Annotated[
        int,
        Setting(
            "servers",
            values.SERVERS,
            "how many servers 'kedge up' runs on one address, from 1 to 9; several need a store"
            " that servers can share, such as an etcd",
        ),
    ] = 1
    replica: Annotated[
        int,
        Setting(
            "replica",
            values.COUNT,
            "which of several servers of one directory this is, from 2 on",
            default="the only one, or the first",
            only_flag=True,
        ),
    ] = 0
    admission: Annotated[
        tuple[str, ...],
        Setting(
            "admission-control",
            values.LIST,
            "the admission plugins to enable, instead of the default ones, comma-separated",
            spellings=("-admission_control", "--admission_control"),
        ),
        Setting(
            "enable-admission-plugins",
            values.LIST,
            "admission plugins to enable besides the default ones",
        ),
        Setting(
            "disable-admission-plugins",
            values.LIST,
            "default admission plugins to disable",
        ),
    ] = ()
    admission_configuration: Annotated[
        Path | None,
        Setting(
            "admission-control-config-file",
            values.FILE,
            "file with an AdmissionConfiguration, which may configure PodSecurity",
            default="none",
        ),
    ] = None
    local_registry: Annotated[
        str,
        Setting(
            "local-registry",
            values.REGISTRY,
            "announce this registry of the machine, such as localhost:5000, in the ConfigMap"
            " local-registry-hosting, where Tilt and Skaffold look for it",
            default="none",
        ),
    ] = ""
    upstream_only: Annotated[
        bool,
        Setting(
            "upstream-only",
            values.SWITCH,
            "refuse kedge's extensions as Kubernetes would",
            default="accept them with a warning",
        ),
    ] = False
    scrape_kubelets: Annotated[
        bool,
        Setting(
            "scrape-kubelets",
            values.SWITCH,
            "ask nodes that report no usage by themselves for it, as --metrics-resolution says"
            " or every 15s",
            default="do not",
        ),
    ] = False
    kubelets: KubeletTrust = KubeletTrust()
    metrics_window: Annotated[str, METRICS_WINDOW] = "10s"
    scheduler_usage: Annotated[
        bool,
        Setting(
            "scheduler-usage",
            values.ON_OR_OFF,
            "whether the measured usage of nodes and pods counts when a node is chosen; off"
            " compares requests only, as Kubernetes does",
        ),
    ] = True
    controllers: Annotated[
        tuple[str, ...],
        Setting(
            "controllers",
            values.LIST,
            "the controllers to run, comma-separated: * for all, NAME for one, -NAME to leave one"
            " out, such as '*,-statefulset-controller' to delete an object that breaks it",
            default="*",
        ),
    ] = ()
    """The scheduler counts as a controller."""
    token_auth_file: Annotated[
        Path | None,
        Setting(
            "token-auth-file",
            values.FILE,
            'CSV file with more tokens, one per line: token,user,uid,"group,group"',
            default="none",
        ),
    ] = None
    authentication_config: Annotated[
        Path | None,
        Setting(
            "authentication-config",
            values.FILE,
            "file with an AuthenticationConfiguration: issuers of JSON web tokens (OpenID Connect),"
            " and which paths need no credentials",
            default="none",
        ),
    ] = None
    token_webhook: Annotated[
        Path | None,
        Setting(
            "authentication-token-webhook-config-file",
            values.FILE,
            "kubeconfig of a webhook that is asked about tokens that the server does not know",
            default="none",
        ),
    ] = None
    token_webhook_version: Annotated[
        str,
        Setting(
            "authentication-token-webhook-version",
            values.REVIEW_VERSION,
            "version of the TokenReviews that the webhook gets: v1 or v1beta1",
        ),
    ] = "v1beta1"
    token_webhook_ttl: Annotated[
        float,
        Setting(
            "authentication-token-webhook-cache-ttl",
            values.SECONDS,
            "how long answers of the token webhook are remembered",
        ),
    ] = 120.0
    request_headers: RequestHeaderTrust = RequestHeaderTrust()
    authorization_config: Annotated[
        Path | None,
        Setting(
            "authorization-config",
            values.FILE,
            "file with an AuthorizationConfiguration: the authorizers and webhooks to ask, in"
            " order",
            default="Node, then RBAC",
        ),
    ] = None
    extend_tokens: Annotated[
        bool,
        Setting(
            "service-account-extend-token-expiration",
            values.ON_OR_OFF,
            "whether the default tokens of pods live for a year, for programs that do not read"
            " them again",
        ),
    ] = True
    encryption_config: Annotated[
        Path | None,
        Setting(
            "encryption-provider-config",
            values.FILE,
            "file with an EncryptionConfiguration: the resources that are stored encrypted, and the"
            " keys",
            default="none",
        ),
    ] = None
    encryption_reload: Annotated[
        bool,
        Setting(
            "encryption-provider-config-automatic-reload",
            values.SWITCH,
            "use the EncryptionConfiguration as it is whenever its file changes",
            default="after a restart",
        ),
    ] = False
    audit_log: Annotated[
        Path | None,
        Setting(
            "audit-log-path",
            values.FILE,
            "file that gets a line of JSON for every request",
            default="none",
        ),
    ] = None
    max_requests_inflight: Annotated[
        int,
        Setting(
            "max-requests-inflight",
            values.COUNT,
            "concurrent reads before further ones get 429, 0 for no limit",
        ),
    ] = 400
    max_mutating_requests_inflight: Annotated[
        int,
        Setting(
            "max-mutating-requests-inflight",
            values.COUNT,
            "concurrent writes before further ones get 429, 0 for no limit",
        ),
    ] = 200
    request_timeout: Annotated[
        float,
        Setting(
            "request-timeout",
            values.SECONDS,
            "how long a request may take, apart from watches and streams, before it gets 504",
        ),
    ] = 60.0
    node_grace: Annotated[
        float,
        Setting(
            "node-monitor-grace-period",
            values.SECONDS,
            "how long a node may send nothing before it is unreachable; nodes renew their lease"
            " every 10s",
        ),
    ] = 50.0
    dns: Annotated[str, cluster.DNS] = "cluster"
    device_access: Annotated[tuple[DeviceAccessRule, ...], cluster.DEVICE_ACCESS] = ()
    scrape_seconds: Annotated[int, METRICS_RESOLUTION] = 15
    local_nodes: Annotated[
        Mapping[str, str],
        Setting(
            "local-nodes",
            values.NODE_ADDRESSES,
            "nodes to make certificates for, which run beside the server in --state",
        ),
    ] = {}
    node_ports: Annotated[
        range,
        Setting(
            "service-node-port-range",
            values.PORT_RANGE,
            "the ports of nodes for Services of type NodePort and LoadBalancer",
        ),
    ] = NODE_PORTS
    load_balancer_network: Annotated[str, cluster.LOAD_BALANCERS] = LOAD_BALANCER_NETWORK
    gateway: Annotated[
        bool,
        Setting(
            "gateway",
            values.ON_OR_OFF,
            "whether a gateway on loopback forwards HTTP for NAME.NAMESPACE.localhost to the"
            " Service NAME, and serves Ingresses",
        ),
    ] = False
    gateway_port: Annotated[
        int,
        Setting(
            "gateway-port",
            values.PORT,
            "port of the gateway on loopback",
            default="the one it had before, else any free one",
        ),
    ] = 0
    publish: Annotated[
        tuple[PublishedPort, ...],
        Setting(
            "publish",
            values.PUBLISHED_PORTS,
            "a further port of the gateway, for HTTP (80) or HTTPS (443), such as 8080:80 or"
            " 0.0.0.0:443:443; on loopback unless an address is given; can be repeated",
        ),
    ] = ()
    ingress: Annotated[
        bool,
        Setting(
            "ingress",
            values.SWITCH,
            "publish the gateway at ports 80 and 443 of loopback",
            default="do not",
        ),
    ] = False
    simulation: SimulationConfig = SimulationConfig()
    testing: Annotated[bool, cluster.TESTING] = False
    serving: ServingFiles | None = None
    is_alone: bool = False
    """Whether this is only an API server, as kube-apiserver: without the objects and APIs that
    belong to nodes of kedge."""
    service_network: IPv4Network = SERVICE_RANGE
    """The cluster IPs. Nodes of kedge take the default for granted."""
    restart_reason: str = ""
    """How the previous server process ended, if this one replaces it."""
    first_objects: Path | None = None
    """A file with the objects of another cluster, with which an empty store begins."""

    @property
    def published_ports(self) -> tuple[PublishedPort, ...]:
        """The ports of the gateway besides the one for names of Services."""
        return (*self.publish, *(INGRESS_PORTS if self.ingress else ()))

    @property
    def simulated_nodes_have_taint(self) -> bool:
        """Whether pods must tolerate a taint to be pretended."""
        return self.simulation.taint == "on" or (
            self.simulation.taint == "auto" and bool(self.local_nodes)
        )

    @property
    def pki(self) -> Path:
        """The directory of keys and certificates."""
        return self.state / "pki"

    @property
    def front_proxy_pki(self) -> Path:
        """The identity of the server towards extension servers."""
        return self.pki / "front-proxy"

    def node_pki(self, name: str) -> Path:
        """The directory of keys and certificates of a node that is here."""
        return self.nodes / name / "pki"

    @property
    def nodes(self) -> Path:
        """The directories of the nodes that are here, by name."""
        return self.state / "nodes"

    @property
    def token_file(self) -> Path:
        """The file with the administrator's token."""
        return self.state / "token"

    @property
    def scraped(self) -> Path:
        """The file in which the windows of scraped nodes outlive the server."""
        return self.state / ("scraped-usage" if self.is_first else f"scraped-usage-{self.replica}")

    @property
    def etcd_endpoints(self) -> tuple[str, ...]:
        """The members of the etcd with the objects; none if they are elsewhere."""
        return parse.etcd_endpoints(self.store)

    @property
    def has_shared_store(self) -> bool:
        """Whether other servers may use the same objects."""
        return parse.is_elsewhere(self.store)

    @property
    def identity(self) -> str:
        """The identity among the servers of one store. It depends on machine and directory only, so
        that a server which comes back has its own Leases. Machines may have one host name, such as
        localhost, and the directory is the same on most of them."""
        place = f"{self.state.resolve().as_uri()}#{_machine_id()}"
        own = f"{gethostname()}_{uuid5(NAMESPACE_URL, place)}"
        return own if self.is_first else f"{own}_{self.replica}"

    @property
    def is_first(self) -> bool:
        """Whether this is the only server of its directory, or the first one. It does the work of a
        machine, such as the gateway."""
        return self.replica <= 1

    @property
    def database(self) -> Path:
        """The file of the SQLite store."""
        return self.state / "store.db"


def _machine_id() -> str:
    """Return what systemd calls this machine; empty in most containers, which have host names of
    their own."""
    try:
        return _MACHINE_ID.read_text().strip()
    except OSError:
        return ""
