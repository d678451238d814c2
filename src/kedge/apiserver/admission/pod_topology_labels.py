"""PodTopologyLabels: a pod that is bound to a node learns the node's zone and region."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1 import node
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Document, Object
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin
from kedge.apiserver.watchcache import ResourceCache

TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class _NodeMetadata(msgspec.Struct):
    labels: Mapping[str, str] = {}


class _LabelledNode(msgspec.Struct):
    """Of a node, what is looked at: a node says much, and pods are bound often."""

    metadata: _NodeMetadata


_DECODER: Final = msgspec.json.Decoder(_LabelledNode)


class PodTopologyLabels(MutatingPlugin):
    """Copies the zone and region labels of a node to the pods that are bound to it."""

    name = "PodTopologyLabels"

    def __init__(self, nodes: ResourceCache) -> None:
        self._nodes = nodes

    async def mutate(self, attempt: Attempt) -> Object | None:
        request, obj = attempt.request, attempt.object
        if attempt.operation != "CREATE" or obj is None or request.resource.plural != "pods":
            return obj
        if isinstance(obj, Pod) and not request.subresource:
            return self._placed(obj, obj.spec.nodeName)
        if isinstance(obj, Document) and request.subresource == "binding":
            target = obj.content.get("target") or {}
            return (
                self._placed(obj, target.get("name", "")) if target.get("kind") == "Node" else obj
            )
        return obj

    def _placed(self, obj: Object, name: str) -> Object:
        item = self._nodes.get(node.RESOURCE.key("", name)) if name else None
        if item is None:
            return obj
        labels = _DECODER.decode(item.body).metadata.labels
        place = {key: labels[key] for key in TOPOLOGY if key in labels}
        if not place:
            return obj
        return replace(obj, metadata=replace(obj.metadata, labels={**obj.metadata.labels, **place}))
