"""The configuration of a metrics server; `kedge.config` makes it."""

from pathlib import Path
from typing import Final

import msgspec

from kedge.apiserver.config import KubeletTrust
from kedge.metrics.windows import SHORTEST

PORT: Final = 4443
SERVICE: Final = ("kedge-metrics.kube-system.svc", "kedge-metrics.kube-system")
"""Its names for the API server in front, if installed as in the example."""


class MetricsServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one metrics server needs to know; nothing in it changes while it runs."""

    state: Path
    """The directory of its certificates and windows."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = PORT
    """The port to listen on; 0 means any free one."""
    hosts: tuple[str, ...] = ()
    """Further names and addresses that the serving certificate is to carry."""
    certificate: Path | None = None
    """The serving certificate; None has the server make its own."""
    key: Path | None = None
    """The key of that certificate."""
    kubelets: KubeletTrust = KubeletTrust()
    """The kubelet certificates to trust."""
    resolution: int = 15
    """Seconds between two readings of a node."""
    window: str = SHORTEST
    """The window whose mean metrics.k8s.io reports."""

    @property
    def pki(self) -> Path:
        """The directory of keys and certificates."""
        return self.state / "pki"

    @property
    def windows(self) -> Path:
        """The file in which windows outlive the server."""
        return self.state / "scraped-usage"
