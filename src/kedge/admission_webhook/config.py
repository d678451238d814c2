"""The configuration of an admission webhook, and the settings that it is made from."""

from pathlib import Path
from typing import Annotated, Final

import msgspec

from kedge.apiserver.config import HOST
from kedge.settings import values
from kedge.settings.setting import Setting

SERVICE: Final = ("kedge-admission-webhook.kube-system.svc",)
"""Its name for the API server, if installed from the printed manifests."""


class AdmissionWebhookConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one admission webhook."""

    state: Annotated[
        Path,
        Setting(
            "state",
            values.DIRECTORY,
            "directory for certificates",
            default="kedge-admission-webhook under $XDG_STATE_HOME, for root under /var/lib",
            # $KEDGE_STATE is the directory of a cluster.
            only_flag=True,
        ),
    ]
    host: Annotated[str, HOST] = "127.0.0.1"
    port: Annotated[int, Setting("port", values.PORT, "port to listen on, 0 for any free one")] = (
        9443
    )
    hosts: Annotated[
        tuple[str, ...],
        Setting(
            "cert-hosts",
            values.LIST,
            "further names and addresses for the serving certificate, comma-separated",
            note="; that of the printed Service is always there",
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
    callers: Annotated[
        Path | None,
        Setting(
            "client-ca-file",
            values.FILE,
            "authority of the API server's client certificate, which callers must then show",
            default="anyone may call",
        ),
    ] = None

    @property
    def pki(self) -> Path:
        """The directory of keys and certificates."""
        return self.state / "pki"
