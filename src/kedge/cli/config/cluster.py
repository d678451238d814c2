"""Find out which cluster, context or kubeconfig a command is about."""

from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.cluster.registry import ClusterLocation, resolve
from kedge.cli.cluster.state import read as read_cluster
from kedge.cli.config.settings import Settings
from kedge.settings import cluster

if TYPE_CHECKING:
    pass


def where(source: Settings) -> ClusterLocation:
    """Return the cluster of the command."""
    name, directory = source.get(cluster.NAME), source.get(cluster.STATE)
    if source.is_flag(cluster.NAME) and not source.is_flag(cluster.STATE):
        # A name on the command line is stronger than a directory in the environment or in a file.
        directory = None
    # Bridges and control groups are named after the real path, whatever link leads there.
    real = directory.resolve() if directory else None
    return ClusterLocation(source.root(), name or cluster.DEFAULT_NAME, real)


def place(source: Settings) -> tuple[str, Path]:
    """Return the cluster's name and directory; a directory that holds a cluster knows its name."""
    asked = where(source)
    if asked.directory is None:
        return asked.name, resolve(asked.root, asked.name)
    if source.get(cluster.NAME) is None:
        known = read_cluster(asked.directory)
        return known.name if known else cluster.DEFAULT_NAME, asked.directory
    return asked.name, asked.directory
