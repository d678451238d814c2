"""Cluster: a throw-away cluster, for code without an event loop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from kedge.api.testing.snapshot_info import SnapshotInfo
from kedge.cluster.async_cluster import START_SECONDS, AsyncCluster
from kedge.cluster.settings import Value
from kedge.cluster.sync_client import BlockingClient


class BlockingCluster(BlockingClient[AsyncCluster]):
    """The methods of a cluster that was started here."""

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._async.url

    @property
    def state(self) -> Path:
        """The directory of the cluster, with the logs of its programs."""
        return self._async.state

    @property
    def processes(self) -> Mapping[str, int]:
        """The pid of each program by its name: server, node-1."""
        return self._async.processes

    def keep(self) -> None:
        """Let the cluster run when this process ends, until `kedge down` deletes it."""
        self._async.keep()

    def start(self) -> Self:
        """Start the cluster; returns when it is ready."""
        self._run(self._async.start())
        return self

    def fork(
        self, snapshot: SnapshotInfo | str | None = None, **settings: Value
    ) -> "BlockingCluster":
        """Start a second cluster with the same objects and settings, but for those named here:
        `with c.fork() as d`. The objects are those of a snapshot, or those of now."""
        return BlockingCluster(self._run(self._async.fork(snapshot, **settings)))

    def close(self) -> None:
        """End the cluster; returns when nothing of it is left."""
        super().close()


class Cluster(BlockingCluster):
    """A cluster that lives as long as the context: `with kedge.Cluster() as c`.

    Keyword arguments are the settings of `kedge up`, with underscores:
    `image_map="busybox:*=host"`. The cluster ends with this process, however that ends.
    """

    def __init__(
        self,
        *,
        store: str = "memory",
        nodes: int = 1,
        state: Path | str | None = None,
        kubeconfig: Path | str | None = None,
        wait: float = START_SECONDS,
        **settings: Value,
    ) -> None:
        """Take the settings; the context starts the cluster.

        `state` is a directory that is kept when the cluster ends, `wait` the number of seconds in
        which the cluster must be ready.
        """
        super().__init__(
            AsyncCluster(
                store=store,
                nodes=nodes,
                state=state,
                kubeconfig=kubeconfig,
                wait=wait,
                **settings,
            )
        )
