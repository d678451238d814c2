"""Find out which kubeconfig and context a command is about."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.config.settings import Settings
from kedge.cli.objects.client_flags import ClientConfig
from kedge.client.kubeconfig_paths import path_to_change, paths_to_read

if TYPE_CHECKING:
    from kedge.client.login import Login


def kubeconfig(source: Settings) -> Path:
    """Return the kubeconfig file to put the cluster into."""
    given: Path | None = source.flags.kubeconfig
    listed = source.environment.get("KUBECONFIG", "")
    return (given or path_to_change(listed, source.home())).absolute()


def client_config(source: Settings) -> ClientConfig:
    """Return the cluster of a command that uses a kubeconfig as kubectl does."""
    given: Path | None = source.flags.kubeconfig
    listed = source.environment.get("KUBECONFIG", "")
    return ClientConfig(
        files=[given] if given else paths_to_read(listed, source.home()),
        context=source.flags.context,
        namespace=getattr(source.flags, "namespace", ""),
        caches=source.caches(),
    )


def login(source: Settings) -> "Callable[[], Login]":
    """Return how to log in to the cluster of a kubeconfig, or to that of this pod without one."""
    from kedge.client import login
    from kedge.client.cluster_login import in_cluster

    found = client_config(source)
    if any(path.exists() for path in found.files):
        return lambda: login.read(found.files, found.context)
    return lambda: in_cluster(source.environment)
