from kedge.cluster.async_client import AsyncClusterClient as AsyncClusterClient
from kedge.cluster.async_cluster import AsyncCluster as AsyncCluster
from kedge.cluster.cluster import Cluster as Cluster
from kedge.cluster.errors import ClusterError as ClusterError
from kedge.cluster.errors import WaitTimeout as WaitTimeout
from kedge.cluster.sync_client import ClusterClient as ClusterClient
from kedge.machinery.errors import StatusError as StatusError

__version__: str
KUBERNETES: str
