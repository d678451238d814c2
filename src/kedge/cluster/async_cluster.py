"""AsyncCluster: a throw-away cluster, for code with an event loop."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from kedge.cluster.async_client import AsyncClusterClient
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
        chosen: dict[str, Value] = {"store": store, "nodes": nodes, "wait": f"{wait:g}s"}
        self._flags = flags({"gateway": False, **settings, **chosen})
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
        if self._kept is None:
            self._kept = await asyncio.to_thread(
                connection.start, self._flags, state=self._state, kubeconfig=self._chosen_file
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
