"""The configuration of a metrics server, and the settings that it is made from."""

from pathlib import Path
from typing import Annotated, Final

import msgspec

from kedge.apiserver.config import HOST, METRICS_RESOLUTION, METRICS_WINDOW, KubeletTrust
from kedge.settings import values
from kedge.settings.setting import Setting

SERVICE: Final = ("kedge-metrics.kube-system.svc", "kedge-metrics.kube-system")
"""Its names for the API server in front, if installed as in the example."""


class MetricsServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one metrics server."""

    state: Annotated[
        Path,
        Setting(
            "state",
            values.DIRECTORY,
            "directory for certificates and for windows, which outlive the server there",
            default="kedge-metrics under $XDG_STATE_HOME, for root under /var/lib",
            # $KEDGE_STATE is the directory of a cluster.
            only_flag=True,
        ),
    ]
    host: Annotated[str, HOST] = "127.0.0.1"
    port: Annotated[int, Setting("port", values.PORT, "port to listen on, 0 for any free one")] = (
        4443
    )
    hosts: Annotated[
        tuple[str, ...],
        Setting(
            "cert-hosts",
            values.LIST,
            "further names and addresses for the serving certificate, comma-separated",
            note="; that of the example's service is always there",
        ),
    ] = ()
    certificate: Annotated[
        Path | None,
        Setting("tls-cert-file", values.FILE, "serving certificate", default="one that it creates"),
    ] = None
    key: Annotated[
        Path | None,
        Setting("tls-private-key-file", values.FILE, "key of that certificate"),
    ] = None
    kubelets: KubeletTrust = KubeletTrust()
    resolution: Annotated[int, METRICS_RESOLUTION] = 15
    window: Annotated[str, METRICS_WINDOW] = "10s"

    @property
    def pki(self) -> Path:
        """The directory of keys and certificates."""
        return self.state / "pki"

    @property
    def windows(self) -> Path:
        """The file in which windows outlive the server."""
        return self.state / "scraped-usage"
