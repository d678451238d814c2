from kedge.cluster.async_client import AsyncClusterClient as AsyncClusterClient
from kedge.cluster.async_cluster import AsyncCluster as AsyncCluster
from kedge.cluster.async_namespace import AsyncClusterNamespace as AsyncClusterNamespace
from kedge.cluster.cluster import Cluster as Cluster
from kedge.cluster.errors import ClusterError as ClusterError
from kedge.cluster.errors import WaitTimeout as WaitTimeout
from kedge.cluster.namespace import ClusterNamespace as ClusterNamespace
from kedge.cluster.sync_client import ClusterClient as ClusterClient
from kedge.cluster.unittest_mixin import ClusterTestMixin as ClusterTestMixin
from kedge.machinery.errors import StatusError as StatusError

__version__: str
KUBERNETES: str
