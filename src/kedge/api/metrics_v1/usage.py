"""NodeMetrics and PodMetrics of version v1: the same as those of v1beta1."""

from kedge.api.metrics_v1beta1 import usage


class PodMetrics(usage.PodMetrics):
    """The usage of a pod."""


class NodeMetrics(usage.NodeMetrics):
    """The usage of a node."""


PODS = usage.pods(PodMetrics, "v1")
NODES = usage.nodes(NodeMetrics, "v1")
