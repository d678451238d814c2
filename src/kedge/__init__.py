"""kedge: a Kubernetes-compatible cluster that is one `pip install` away."""

__version__ = "0.1.0"
KUBERNETES = "1.36.4"
"""The release of Kubernetes that this one follows."""

_EXPORTS = {
    "AsyncCluster": "kedge.cluster.async_cluster",
    "AsyncClusterClient": "kedge.cluster.async_client",
    "Cluster": "kedge.cluster.cluster",
    "ClusterClient": "kedge.cluster.sync_client",
    "ClusterNamespace": "kedge.cluster.namespace",
    "AsyncClusterNamespace": "kedge.cluster.async_namespace",
    "ClusterTestMixin": "kedge.cluster.unittest_mixin",
    "ClusterError": "kedge.cluster.errors",
    "StatusError": "kedge.machinery.errors",
    "WaitTimeout": "kedge.cluster.errors",
}
"""The public names by their modules, which are imported when a name is used: every process of kedge
imports this module."""


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'kedge' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
