"""AsyncClusterNamespace: a namespace for one test, for code with an event loop."""

from pathlib import Path
from typing import Self

from kedge.cluster import namespace_account
from kedge.cluster.async_client import AsyncClusterClient
from kedge.cluster.errors import ClusterError


class AsyncClusterNamespace(AsyncClusterClient):
    """A new namespace, which is deleted at the end of the context.

    Its kubeconfig is that of a service account that may do everything in this namespace, and
    nothing elsewhere. The methods act as this account.
    """

    def __init__(self, cluster: AsyncClusterClient, prefix: str) -> None:
        super().__init__("")
        self._cluster = cluster
        self._prefix = prefix
        self._made: Path | None = None
        self._is_kept = False

    @property
    def kubeconfig(self) -> Path:
        if self._made is None:
            raise ClusterError("the namespace does not exist: use it in a `with` statement")
        return self._made

    async def __aenter__(self) -> Self:
        session = self._cluster.session
        name = await namespace_account.make(session, self._prefix)
        self._made = await namespace_account.write_kubeconfig(session, name)
        return self

    async def close(self) -> None:
        """Delete the namespace; does not wait until it is gone."""
        made, name = self._made, self.namespace if self._made else ""
        await super().close()
        self._made = None
        if made is None or self._is_kept:
            return
        namespace_account.remove_kubeconfig(made)
        await self._cluster.delete(f"namespace/{name}", timeout=0)

    def keep(self) -> None:
        """Keep the namespace at the end of the context."""
        self._is_kept = True

    def how_to_reach(self) -> str:
        return f"Kept: kubectl --kubeconfig {self.kubeconfig} get all"
