"""Find out which cluster, context or kubeconfig a command is about."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.client_flags import Whereto
from kedge.cli.config.source import Source
from kedge.cli.registry import Where, resolve
from kedge.cli.state import read as read_cluster
from kedge.client.kubeconfig_paths import path_to_change, paths_to_read
from kedge.settings import cluster

if TYPE_CHECKING:
    from kedge.client.login import Login


def where(source: Source) -> Where:
    """Return the cluster of the command."""
    name, directory = source.get(cluster.NAME), source.get(cluster.STATE)
    if source.is_flag(cluster.NAME) and not source.is_flag(cluster.STATE):
        # A name on the command line is stronger than a directory in the environment or in a file.
        directory = None
    # Bridges and control groups are named after the real path, whatever link leads there.
    real = directory.resolve() if directory else None
    return Where(source.root(), name or cluster.DEFAULT_NAME, real)


def place(source: Source) -> tuple[str, Path]:
    """Return the cluster's name and directory; a directory that holds a cluster knows its name."""
    asked = where(source)
    if asked.directory is None:
        return asked.name, resolve(asked.root, asked.name)
    if source.get(cluster.NAME) is None:
        known = read_cluster(asked.directory)
        return known.name if known else cluster.DEFAULT_NAME, asked.directory
    return asked.name, asked.directory


def kubeconfig(source: Source) -> Path:
    """Return the kubeconfig file to put the cluster into."""
    given: Path | None = source.flags.kubeconfig
    listed = source.environment.get("KUBECONFIG", "")
    return (given or path_to_change(listed, source.home())).absolute()


def whereto(source: Source) -> Whereto:
    """Return the cluster of a command that uses a kubeconfig as kubectl does."""
    given: Path | None = source.flags.kubeconfig
    listed = source.environment.get("KUBECONFIG", "")
    return Whereto(
        files=[given] if given else paths_to_read(listed, source.home()),
        context=source.flags.context,
        namespace=getattr(source.flags, "namespace", ""),
    )


def login(source: Source) -> "Callable[[], Login]":
    """Return how to log in to the cluster of a kubeconfig, or to that of this pod without one."""
    from kedge.client import login
    from kedge.metrics_server import in_cluster

    found = whereto(source)
    if any(path.exists() for path in found.files):
        return lambda: login.read(found.files, found.context)
    return lambda: in_cluster(source.environment)
