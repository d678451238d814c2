"""The check of a container's variables at its start, against a real server's decisions."""

from typing import Any

import pytest

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.devices.access import DeviceAccessReview
from kedge.node.pod.dependencies import ConfigFailure
from kedge.settings.device_access import parse_device_access
from kedge.testing.dra_driver import pod_using
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import new_pod

RULE = parse_device_access("FPGA_BITSTREAM_ID_*=bitstreams.fpga.intel.com")
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1"
GOOD = {"FPGA_BITSTREAM_ID_1": "good"}


def fpga_pod(**limits: str) -> Pod:
    resources = {"limits": limits or {"fpga.intel.com/region-a": "1"}}
    return new_pod(spec={"containers": [{"name": "c", "image": "x", "resources": resources}]})


@pytest.fixture
async def review() -> Any:
    """A check on a server where service accounts may use the bitstream `good`."""
    async with LocalServer.running() as server:
        rule = {
            "apiGroups": ["fpga.intel.com"],
            "resources": ["bitstreams"],
            "resourceNames": ["good"],
            "verbs": ["use"],
        }
        await server.post(
            f"{CLUSTER_ROLES}/clusterroles", {"metadata": {"name": "fpga"}, "rules": [rule]}
        )
        await server.post(
            f"{CLUSTER_ROLES}/clusterrolebindings",
            {
                "metadata": {"name": "fpga"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "fpga",
                },
                "subjects": [{"kind": "Group", "name": "system:serviceaccounts"}],
            },
        )
        yield DeviceAccessReview(server.client, [RULE])


async def test_an_account_with_the_right_passes(review: DeviceAccessReview) -> None:
    pod = fpga_pod()
    await review.check(pod, pod.spec.containers[0], GOOD)


async def test_a_value_that_the_account_may_not_use_fails_the_start(
    review: DeviceAccessReview,
) -> None:
    pod = fpga_pod()
    with pytest.raises(ConfigFailure, match=r'"use" for bitstreams\.fpga\.intel\.com "evil"'):
        await review.check(pod, pod.spec.containers[0], {"FPGA_BITSTREAM_ID_2": "evil"})


async def test_a_container_with_a_claim_is_checked(review: DeviceAccessReview) -> None:
    pod = pod_using("c")
    with pytest.raises(ConfigFailure, match='"evil"'):
        await review.check(pod, pod.spec.containers[0], {"FPGA_BITSTREAM_ID_2": "evil"})


async def test_a_container_without_devices_is_not_checked(review: DeviceAccessReview) -> None:
    pod = fpga_pod(cpu="1")
    await review.check(pod, pod.spec.containers[0], {"FPGA_BITSTREAM_ID_2": "evil"})
