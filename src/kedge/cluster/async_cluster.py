"""AsyncCluster: a throw-away cluster, for code with an event loop."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from kedge.api.testing.snapshot_info import SnapshotInfo
from kedge.cluster.async_client import AsyncClusterClient
from kedge.cluster.controls import AsyncControls
from kedge.cluster.errors import ClusterError
from kedge.cluster.settings import Value, flags
from kedge.cluster.warm_parent import connection

START_SECONDS: Final = 30.0
"""How long a cluster may take to be ready if the caller does not say."""


class AsyncCluster(AsyncClusterClient):
    """A cluster that lives as long as the context: `async with kedge.AsyncCluster() as c`.

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
        super().__init__("")
        self._settings = {**settings, "store": store, "nodes": nodes, "wait": wait}
        self._flags = flags({"gateway": False, **self._settings, "wait": f"{wait:g}s"})
        self._state = str(state or "")
        self._chosen_file = str(kubeconfig or "")
        self._kept: connection.KeptCluster | None = None

    @property
    def kubeconfig(self) -> Path:
        return Path(self._running.answer.kubeconfig)

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._running.answer.url

    @property
    def state(self) -> Path:
        """The directory of the cluster, with the logs of its programs."""
        return Path(self._running.answer.state)

    @property
    def _running(self) -> connection.KeptCluster:
        if self._kept is None:
            raise ClusterError("the cluster does not run: use it in a `with` statement")
        return self._kept

    @property
    def processes(self) -> Mapping[str, int]:
        """The pid of each program by its name: server, node-1."""
        return self._running.answer.processes

    def keep(self) -> None:
        """Let the cluster run when this process ends, until `kedge down` deletes it."""
        self._running.keep()

    def how_to_reach(self) -> str:
        return (
            f"Kept: kubectl --kubeconfig {self.state}/kubeconfig get all -A; delete it with:"
            f" kedge down --state {self.state} --purge --yes"
        )

    async def start(self) -> Self:
        """Start the cluster; returns when it is ready."""
        return await self._start_with(b"")

    async def fork(
        self, snapshot: SnapshotInfo | str | None = None, **settings: Value
    ) -> "AsyncCluster":
        """Start a second cluster with the same objects and settings, but for those named here:
        `async with await c.fork() as d`. The objects are those of a snapshot, or those of now.
        """
        if refused := settings.keys() & {"state", "kubeconfig"}:
            raise ClusterError(f"{min(refused)} cannot be set: a fork has a directory of its own")
        controls = AsyncControls(self._controls_client)
        content = await controls.content(snapshot)
        known: dict[str, Any] = {**self._settings, **settings}
        forked = await AsyncCluster(**known)._start_with(content)
        try:
            await AsyncControls(forked._controls_client).follow(controls)
        except BaseException:
            await forked.close()
            raise
        return forked

    async def _start_with(self, objects: bytes) -> Self:
        """Start the cluster with these objects; with those of every cluster, if there are none."""
        if self._kept is None:
            self._kept = await asyncio.to_thread(
                connection.start,
                self._flags,
                state=self._state,
                kubeconfig=self._chosen_file,
                objects=objects,
            )
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def close(self) -> None:
        """End the cluster; returns when nothing of it is left."""
        await super().close()
        kept, self._kept = self._kept, None
        if kept is not None:
            await asyncio.to_thread(kept.close)
