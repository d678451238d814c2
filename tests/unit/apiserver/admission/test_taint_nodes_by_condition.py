"""New nodes get the taint that keeps pods away until they are ready."""

from collections.abc import Sequence

import pytest

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from kedge.api.model import ObjectMeta
from kedge.apiserver.admission.chain import Operation
from kedge.apiserver.admission.taint_nodes_by_condition import NOT_READY, TaintNodesByCondition
from kedge.testing.admission import attempt

OTHER = Taint(key="a", effect="NoSchedule")
EVICTION = Taint(key=NOT_READY.key, effect="NoExecute")


def _node(taints: Sequence[Taint] = (), ready: str = "") -> Node:
    conditions = [NodeCondition(type="Ready", status=ready)] if ready else []
    return Node(
        metadata=ObjectMeta(name="n"),
        spec=NodeSpec(taints=taints),
        status=NodeStatus(conditions=conditions),
    )


@pytest.mark.parametrize(
    ("given", "ready", "operation", "expected"),
    [
        ([], "", "CREATE", [NOT_READY]),
        ([OTHER], "False", "CREATE", [OTHER, NOT_READY]),
        ([EVICTION], "", "CREATE", [EVICTION, NOT_READY]),
        ([NOT_READY, OTHER], "", "CREATE", [NOT_READY, OTHER]),
        ([OTHER], "True", "CREATE", [OTHER]),
        ([OTHER], "", "UPDATE", [OTHER]),
    ],
)
async def test_new_nodes_that_are_not_ready_are_tainted(
    given: list[Taint], ready: str, operation: Operation, expected: list[Taint]
) -> None:
    new = _node(given, ready)
    old = None if operation == "CREATE" else new
    changed = await TaintNodesByCondition().mutate(attempt(node.RESOURCE, operation, new, old))
    assert isinstance(changed, Node)
    assert list(changed.spec.taints) == expected
