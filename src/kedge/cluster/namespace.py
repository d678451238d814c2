"""ClusterNamespace: a namespace for one test, for code without an event loop."""

from kedge.cluster.async_namespace import AsyncClusterNamespace
from kedge.cluster.sync_client import BlockingClient


class ClusterNamespace(BlockingClient[AsyncClusterNamespace]):
    """A new namespace, which is deleted at the end of the context.

    Its kubeconfig is that of a service account that may do everything in this namespace, and
    nothing elsewhere. The methods act as this account.
    """

    def keep(self) -> None:
        """Keep the namespace at the end of the context."""
        self._async.keep()
