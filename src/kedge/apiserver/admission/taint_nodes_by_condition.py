"""TaintNodesByCondition: no pod is scheduled to a new node before it is ready."""

from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1.node_types import Node, Taint
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin

NOT_READY: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")


class TaintNodesByCondition(MutatingPlugin):
    """Taints new nodes with `node.kubernetes.io/not-ready`, except those that come with the
    condition that they are ready."""

    name = "TaintNodesByCondition"

    async def mutate(self, attempt: Attempt) -> Object | None:
        obj = attempt.object
        is_new = attempt.operation == "CREATE" and not attempt.request.subresource
        if not is_new or not isinstance(obj, Node):
            return obj
        # The node lifecycle controller would remove the taint of a ready node at once.
        # kube-apiserver adds it nevertheless: its kubelets do not register as ready.
        if _is_ready(obj) or any(_is_same(each) for each in obj.spec.taints):
            return obj
        return replace(obj, spec=replace(obj.spec, taints=[*obj.spec.taints, NOT_READY]))


def _is_ready(obj: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in obj.status.conditions)


def _is_same(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (NOT_READY.key, NOT_READY.effect)
