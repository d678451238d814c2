"""The client of a driver: from the pod that it runs in, or from a kubeconfig."""

import os
from pathlib import Path
from typing import Final

from kedge.client import login
from kedge.client.client import Client
from kedge.client.http import HttpTransport
from kedge.client.kubeconfig_paths import paths_to_read

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def cluster_client(user_agent: str, account: Path = SERVICE_ACCOUNT) -> Client:
    """Return a client with the service account of the pod, or else with the kubeconfig. Raises
    KubeconfigError or OSError."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    token = account / "token"
    if host and token.exists() and "KUBECONFIG" not in os.environ:
        where = f"[{host}]" if ":" in host else host
        transport = HttpTransport(
            f"https://{where}:{port}",
            ca_pem=(account / "ca.crt").read_bytes(),
            # The file changes: such a token is valid for an hour.
            token=lambda: token.read_text().strip(),
        )
        return Client(transport, user_agent=user_agent)
    paths = paths_to_read(os.environ.get("KUBECONFIG", ""), Path.home())
    return login.read(paths).client(user_agent)
