from typing import Any

from kedge.api.resource_v1 import device_class, resource_claim, resource_slice
from kedge.api.resource_v1.resource_claim_status import AllocationResult
from kedge.scheduler.devices.allocation import allocation_of
from kedge.scheduler.devices.device_search import ChosenDevice, ClaimChoice
from kedge.scheduler.devices.pools import DeviceID

ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def allocate(
    nodes: dict[str, Any], config: list[dict[str, Any]] | None = None, chosen: str = "r/two"
) -> AllocationResult:
    options = [{"name": name, "deviceClassName": "c"} for name in ("one", "two")]
    devices = {"requests": [{"name": "r", "firstAvailable": options}], "config": config or []}
    claim = resource_claim.RESOURCE.from_document({"spec": {"devices": devices}})
    pool = {"name": "p", "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, "devices": [{"name": "x"}], **nodes}
    slice_ = resource_slice.RESOURCE.from_document({"spec": spec})
    opaque = {"opaque": {"driver": "d", "parameters": {"from": "class"}}}
    class_ = device_class.RESOURCE.from_document(
        {"metadata": {"name": "c"}, "spec": {"config": [opaque]}}
    )
    wish = claim.spec.devices.requests[0].firstAvailable[1]
    device = ChosenDevice(
        chosen, wish, DeviceID("d", "p", "x"), slice_.spec.devices[0], slice_, None
    )
    return allocation_of(claim, ClaimChoice([device], [(chosen, class_)]), "n1", str)


def shown(allocation: AllocationResult) -> list[tuple[str, list[str]]]:
    return [(each.source, list(each.requests)) for each in allocation.devices.config]


def test_a_local_device_pins_the_claim_to_its_node() -> None:
    selector = allocate({"nodeName": "n1"}).nodeSelector
    assert selector is not None
    [field] = selector.nodeSelectorTerms[0].matchFields
    assert (field.key, field.operator, list(field.values)) == ("metadata.name", "In", ["n1"])


def test_a_device_of_all_nodes_leaves_the_claim_free() -> None:
    assert allocate({"allNodes": True}).nodeSelector is None


def test_a_network_device_keeps_its_selector() -> None:
    term = {"matchExpressions": [ZONE]}
    selector = allocate({"nodeSelector": {"nodeSelectorTerms": [term]}}).nodeSelector
    assert selector is not None
    [expression] = selector.nodeSelectorTerms[0].matchExpressions
    assert expression.key == "zone"


def test_configuration_of_the_class_comes_before_that_of_the_claim() -> None:
    opaque = {"driver": "d", "parameters": {"from": "claim"}}
    config: list[dict[str, Any]] = [
        {"opaque": opaque},
        {"requests": ["r"], "opaque": opaque},
        {"requests": ["r/one"], "opaque": opaque},
        {"requests": ["r/two"], "opaque": opaque},
    ]
    assert shown(allocate({"allNodes": True}, config)) == [
        ("FromClass", ["r/two"]),
        ("FromClaim", []),
        ("FromClaim", ["r"]),
        ("FromClaim", ["r/two"]),
    ]
