"""What an API server is told when it starts; `kedge.config` fills it in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from kedge.metrics.windows import SHORTEST

StoreKind = Literal["sqlite", "memory"]

ADMISSION_PLUGINS: Final = (
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "Priority",
    "DefaultTolerationSeconds",
    "PodTopologyLabels",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
)
"""The admission plugins that can be asked for."""

UPSTREAM_ADMISSION: Final = ADMISSION_PLUGINS
"""What a cluster enforces: upstream's default set, and NodeRestriction as its installers add it."""

READS_IN_FLIGHT: Final = 400
WRITES_IN_FLIGHT: Final = 200
NODE_GRACE: Final = 50.0


class KubeletTrust(msgspec.Struct, frozen=True, kw_only=True):
    """Which kubelets are believed when they are asked what they use."""

    authority: Path | None = None
    """Who signs their certificates; None for the cluster's own authority."""
    anybody: bool = False
    """Whether whoever answers is believed."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one server needs to know; nothing in it changes while the server runs."""

    state: Path
    """The directory that holds all the server keeps."""
    name: str = "default"
    """The cluster's name among those on this machine."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 6443
    """The port to listen on; 0 means any free one."""
    store: StoreKind = "sqlite"
    """Where objects are kept."""
    admission: tuple[str, ...] = ()
    """The admission plugins to enforce."""
    upstream_only: bool = False
    """Refuse what Kubernetes itself would refuse, kedge's extensions included."""
    audit_log: Path | None = None
    """The file in which every request leaves a line; None keeps no such file."""
    token_auth_file: Path | None = None
    """A file of further tokens and whose they are; None means there are none."""
    max_requests_inflight: int = READS_IN_FLIGHT
    """Reads that may be under way at once; 0 sets no limit."""
    max_mutating_requests_inflight: int = WRITES_IN_FLIGHT
    """Writes that may be under way at once; 0 sets no limit."""
    controllers: tuple[str, ...] = ()
    """The controllers to run, the scheduler among them."""
    node_grace: float = NODE_GRACE
    """Seconds for which a node may be silent before it is said to be unreachable."""
    scheduler_usage: bool = True
    """Whether what nodes and pods were measured to use enters the choice of nodes."""
    hosts: tuple[str, ...] = ()
    """Further names and addresses that the serving certificate is to carry."""
    local_nodes: Mapping[str, str] = {}
    """Nodes that keep what is theirs in this directory, and their addresses: they get their
    certificates when the server has its own."""
    metrics_window: str = SHORTEST
    """The window whose mean metrics.k8s.io tells."""
    scrape_kubelets: bool = False
    """Whether nodes that do not report what they use are asked for it."""
    kubelets: KubeletTrust = KubeletTrust()
    """Which of them are believed."""
    scrape_seconds: int = 15
    """Seconds between two readings of a node."""
    restart_reason: str = ""
    """How the previous server process ended, if this one replaces it."""

    @property
    def pki(self) -> Path:
        """The directory of keys and certificates."""
        return self.state / "pki"

    def node_pki(self, name: str) -> Path:
        """The directory of keys and certificates of a node that is here."""
        return self.state / "nodes" / name / "pki"

    @property
    def token_file(self) -> Path:
        """The file with the administrator's token."""
        return self.state / "token"

    @property
    def scraped(self) -> Path:
        """The file in which the windows of scraped nodes outlive the server."""
        return self.state / "scraped-usage"

    @property
    def database(self) -> Path:
        """The file of the SQLite store."""
        return self.state / "store.db"
