"""Whether pods that ask for devices add a node."""

from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import ObjectMeta
from kedge.api.resource_v1.device_class import DeviceClass, DeviceClassSpec
from kedge.api.resource_v1.device_request import (
    CELDeviceSelector,
    DeviceClaim,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.resource_v1.resource_slice_types import (
    Device,
    DeviceAttribute,
    ResourcePool,
    ResourceSliceSpec,
)
from kedge.node_autoscaler.cluster_state import ClusterState
from kedge.node_autoscaler.node_devices import ClusterDevices, expected_drivers
from kedge.node_autoscaler.scale_up import ScaleUp, scale_up
from kedge.testing.node_autoscaler import node, pod

DRIVER = "d.example"
SPARE = ("node-2", "node-3")


def slice_of(node: str, *names: str) -> ResourceSlice:
    attributes = {"fast": DeviceAttribute(bool_=True)}
    devices = [Device(name=name, attributes=attributes) for name in names]
    pool = ResourcePool(name=node, generation=1, resourceSliceCount=1)
    spec = ResourceSliceSpec(driver=DRIVER, pool=pool, nodeName=node, devices=devices)
    meta = ObjectMeta(name=f"{node}-slice", resourceVersion="1")
    return ResourceSlice(metadata=meta, spec=spec)


def gpus() -> DeviceClass:
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].fast'
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    spec = DeviceClassSpec(selectors=[selector], extendedResourceName="d.example/gpu")
    return DeviceClass(metadata=ObjectMeta(name="gpus"), spec=spec)


def claim(name: str) -> ResourceClaim:
    exactly = ExactDeviceRequest(deviceClassName="gpus", allocationMode="ExactCount", count=1)
    devices = DeviceClaim(requests=[DeviceRequest(name="r", exactly=exactly)])
    meta = ObjectMeta(name=name, namespace="shop", uid=name)
    return ResourceClaim(metadata=meta, spec=ResourceClaimSpec(devices=devices))


def driver_pod(name: str = "driver", home: str = "node-1", owner: str = "DaemonSet") -> Pod:
    paths = ("/var/lib/kubelet/plugins_registry/", f"/var/lib/kubelet/plugins/{DRIVER}")
    volumes = [{"name": f"v{i}", "hostPath": {"path": path}} for i, path in enumerate(paths)]
    return pod(name, home, owner=owner, cpu="10m", volumes=volumes)


def claiming(name: str) -> Pod:
    entries = [{"name": "gpu", "resourceClaimName": name}]
    return pod(name, cpu="10m", resourceClaims=entries)


def decided(*pods: Pod, devices: ClusterDevices, nodes: Any = ("node-1",)) -> ScaleUp:
    known = {name: node(name) for name in nodes}
    spare = [name for name in SPARE if name not in known]
    return scale_up(ClusterState(known, pods, devices=devices), (), spare)


def with_claims(*names: str) -> ClusterDevices:
    claims = [claim(each) for each in names]
    return ClusterDevices(claims, [gpus()], [slice_of("node-1", "gpu-0")])


def refusals(decision: ScaleUp) -> dict[str, str]:
    return {each.metadata.name: why for each, why in decision.refused}


def test_a_pod_adds_a_node_that_will_have_the_device() -> None:
    devices = with_claims("a", "b")
    decision = decided(driver_pod(), claiming("a"), claiming("b"), devices=devices)
    # The device that is there is for one of them.
    assert decision.nodes == ("node-2",)
    assert [each.metadata.name for each in decision.pods] == ["b"]


def test_as_many_nodes_are_added_as_there_are_devices_to_give() -> None:
    names = ("a", "b", "c", "d")
    decision = decided(
        driver_pod(), *(claiming(name) for name in names), devices=with_claims(*names)
    )
    assert decision.nodes == SPARE
    assert refusals(decision) == {"d": "max node group size reached"}


def test_pods_that_share_a_claim_share_its_node() -> None:
    one, other = claiming("b"), pod("other", cpu="10m")
    sharing = replace(other, spec=replace(other.spec, resourceClaims=one.spec.resourceClaims))
    devices = with_claims("a", "b")
    decision = decided(driver_pod(), claiming("a"), one, sharing, devices=devices)
    assert decision.nodes == ("node-2",)
    assert {each.metadata.name for each in decision.pods} == {"b", "other"}


def test_extended_resources_add_a_node_too() -> None:
    wants = {"requests": {"d.example/gpu": "1"}, "limits": {"d.example/gpu": "1"}}
    container = {"name": "main", "image": "host", "resources": wants}
    pods = [pod(name, containers=[container]) for name in "ab"]
    decision = decided(driver_pod(), *pods, devices=with_claims())
    assert decision.nodes == ("node-2",)


def test_a_driver_outside_of_daemon_sets_is_not_expected() -> None:
    driver = driver_pod(owner="ReplicaSet")
    decision = decided(driver, claiming("a"), claiming("b"), devices=with_claims("a", "b"))
    assert decision.nodes == ()
    assert refusals(decision) == {
        "b": "1 cannot allocate all claims, no DaemonSet runs driver d.example"
    }


def test_a_node_that_waits_for_its_devices_adds_no_other() -> None:
    decision = decided(
        driver_pod(),
        claiming("a"),
        claiming("b"),
        devices=with_claims("a", "b"),
        nodes=("node-1", "node-2"),
    )
    assert decision.nodes == ()
    assert refusals(decision) == {
        "b": "1 cannot allocate all claims, node node-2 has no devices of d.example"
    }


@pytest.mark.parametrize(
    ("paths", "is_driver"),
    [
        (["/var/lib/kubelet"], True),
        (["/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry"], True),
        ([f"/var/lib/kubelet/plugins/{DRIVER}"], False),
        (["/var/lib/kubelet/plugins/other", "/var/lib/kubelet/plugins_registry"], False),
        ([], False),
    ],
)
def test_a_driver_is_known_by_the_directories_that_it_mounts(
    paths: list[str], is_driver: bool
) -> None:
    volumes = [{"name": f"v{i}", "hostPath": {"path": path}} for i, path in enumerate(paths)]
    daemon = pod("daemon", "node-1", owner="DaemonSet", volumes=volumes)
    found = expected_drivers(with_claims(), ["node-1"], [daemon], "node-1")
    assert found == {DRIVER: "" if is_driver else "no DaemonSet runs driver d.example"}
