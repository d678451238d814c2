"""Claims to devices, as kubectl shows them; the devices are written by hand, without a driver."""

from collections.abc import Iterator
from typing import Any

import pytest

Json = dict[str, Any]
GROUP = "/apis/resource.k8s.io/v1"

CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-gadgets}
spec:
  selectors: [{cel: {expression: 'device.driver == "gadget.e2e.example.com"'}}]
"""
SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: e2e-gadgets}
spec:
  driver: gadget.e2e.example.com
  allNodes: true
  pool: {name: gadgets, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: red, attributes: {color: {string: red}}}
  - {name: blue, attributes: {color: {string: blue}}}
"""
WORKLOAD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: blue-gadget}
spec:
  spec:
    devices:
      requests:
      - name: gadget
        exactly:
          deviceClassName: e2e-gadgets
          selectors:
          - cel: {expression: 'device.attributes["gadget.e2e.example.com"].color == "blue"'}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  resourceClaims: [{name: gadget, resourceClaimTemplateName: blue-gadget}]
  containers:
  - name: main
    image: host
    command: [sleep, "600"]
    resources: {claims: [{name: gadget}]}
"""


@pytest.fixture
def gadgets(any_kubectl: Any) -> Iterator[None]:
    """A class of devices; the test writes the slice."""
    any_kubectl("apply -f -", input=CLASS)
    yield
    names = "deviceclass/e2e-gadgets resourceslice/e2e-gadgets"
    any_kubectl(f"delete {names} --ignore-not-found")


def test_a_pod_waits_for_a_device_and_gets_it(
    any_kubectl: Any, pods: Any, gadgets: None, eventually: Any
) -> None:
    any_kubectl("apply -f -", input=WORKLOAD.replace("NAME", "wants"))

    def refusal(pod: Json) -> bool:
        conditions = pod["status"].get("conditions", ())
        told = (each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
        return any("cannot allocate all claims" in each for each in told)

    pods.when("wants", refusal)
    [row] = any_kubectl.table("get resourceclaims")
    assert row["NAME"].startswith("wants-gadget-")
    assert row["STATE"] == "pending"
    any_kubectl("apply -f -", input=SLICE)
    pods.when("wants", lambda pod: pod["spec"].get("nodeName"))
    [row] = any_kubectl.table("get resourceclaims")
    assert row["STATE"] == "allocated,reserved"
    [claim] = any_kubectl.json("get resourceclaims")["items"]
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert (result["pool"], result["device"]) == ("gadgets", "blue")
    any_kubectl("delete pod/wants --force --grace-period=0")
    eventually(lambda: not any_kubectl.json("get resourceclaims")["items"])


def test_a_claim_for_maintenance_needs_a_labelled_namespace(any_kubectl: Any) -> None:
    claim = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: maintenance}
spec:
  devices: {requests: [{name: all, exactly: {deviceClassName: any, adminAccess: true}}]}
"""
    complaint = any_kubectl.fails("apply -f -", input=claim)
    assert "`resource.kubernetes.io/admin-access: true` label" in complaint
