from msgspec.structs import replace

from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import (
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)
from kedge.api.model import ObjectMeta
from kedge.machinery.quantity import Quantity


def errors(obj: Node) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_pods_may_use_all_of_a_node_that_says_nothing_else() -> None:
    capacity = {"cpu": Quantity.parse("4")}
    obj = RESOURCE.strategy.default(Node(status=NodeStatus(capacity=capacity)))
    assert obj.status.allocatable == capacity


def test_taints_are_unique_by_key_and_effect() -> None:
    taint = Taint(key="a", effect="NoSchedule")
    assert errors(Node(spec=NodeSpec(taints=[taint, replace(taint, effect="NoExecute")]))) == []
    (error,) = errors(Node(spec=NodeSpec(taints=[taint, replace(taint, value="x")])))
    assert error == (
        'metadata.taints[1]: Duplicate value: {"effect":"NoSchedule","key":"a","value":"x"}: '
        "taints must be unique by key and effect pair"
    )


def test_devices_come_whole_and_no_amount_is_negative() -> None:
    capacity = {"example.com/gpu": Quantity.parse("500m"), "cpu": Quantity.parse("-1")}
    assert errors(Node(status=NodeStatus(capacity=capacity))) == [
        'status.capacity.example.com/gpu: Invalid value: "500m": must be an integer',
        'status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0',
    ]


def test_networks_and_provider_are_set_once() -> None:
    old = RESOURCE.strategy.default(Node(spec=NodeSpec(podCIDR="10.1.0.0/24", providerID="a://1")))
    new = RESOURCE.strategy.default(Node(spec=NodeSpec(podCIDR="10.2.0.0/24", providerID="a://2")))
    fields = [error.field for error in RESOURCE.strategy.validate_update(new, old)]
    assert fields == ["spec.podCIDRs", "spec.providerID"]
    assert list(RESOURCE.strategy.validate_update(new, Node())) == []


def test_one_network_for_each_family() -> None:
    assert errors(Node(spec=NodeSpec(podCIDRs=["10.1.0.0/24", "fd00::/64"]))) == []
    (error,) = errors(Node(spec=NodeSpec(podCIDRs=["10.1.0.0/24", "10.2.0.0/24"])))
    assert error.endswith("may specify no more than one CIDR for each IP family")


def test_the_columns_tell_a_node_at_a_glance() -> None:
    labels = {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}
    node = Node(
        metadata=ObjectMeta(name="n", labels=labels),
        spec=NodeSpec(unschedulable=True),
        status=NodeStatus(
            conditions=[NodeCondition(type="Ready", status="Unknown")],
            addresses=[NodeAddress(type="InternalIP", address="10.0.0.1")],
            nodeInfo=NodeSystemInfo(kernelVersion="6.1", architecture="amd64"),
        ),
    )
    row = {column.name: column.cell(node) for column in RESOURCE.presentation.columns}
    assert row["Status"] == "NotReady,SchedulingDisabled"
    assert row["Roles"] == "edge,worker"
    assert (row["Internal-IP"], row["External-IP"]) == ("10.0.0.1", "<none>")
    assert (row["OS-Image"], row["Kernel-Version"]) == ("<unknown>", "6.1 (amd64)")
    assert RESOURCE.presentation.fields["spec.unschedulable"](node) == "true"
    assert RESOURCE.presentation.fields["spec.unschedulable"](Node()) == "false"
