"""Pods whose service account may not use what their variables name."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.settings.device_access import parse_device_access
from kedge.testing.local_server import LocalServer

RULE = parse_device_access("FPGA_BITSTREAM_ID_*=bitstreams.fpga.intel.com")
PODS = "/api/v1/namespaces/default/pods"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
REGION = {"limits": {"fpga.intel.com/region-a": "1"}}


@pytest.fixture
async def guarded() -> AsyncIterator[LocalServer]:
    """A server on which the service account `default` may use the bitstream `good`."""
    async with LocalServer.running(device_access=[RULE]) as server:
        rule = {
            "apiGroups": ["fpga.intel.com"],
            "resources": ["bitstreams"],
            "resourceNames": ["good"],
            "verbs": ["use"],
        }
        await server.post(f"{ROLES}/roles", {"metadata": {"name": "fpga"}, "rules": [rule]})
        binding = {
            "metadata": {"name": "fpga"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "fpga",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        }
        await server.post(f"{ROLES}/rolebindings", binding)
        yield server


def pod(resources: Any = REGION, *, place: str = "containers", **spec: Any) -> dict[str, Any]:
    env = [{"name": "FPGA_BITSTREAM_ID_1", "value": spec.pop("bitstream", "good")}]
    one = {"name": "c", "image": "x"}
    container = {"name": "fpga", "image": "x", "env": env, "resources": resources}
    containers = {"containers": [one], place: [container]}
    return {"metadata": {"name": "p"}, "spec": {**containers, **spec}}


async def test_a_pod_whose_account_may_use_the_bitstream_is_accepted(guarded: LocalServer) -> None:
    assert (await guarded.call("POST", PODS, pod())).status == 201


@pytest.mark.parametrize("place", ["containers", "initContainers"])
async def test_a_pod_with_another_bitstream_is_refused(guarded: LocalServer, place: str) -> None:
    answer = await guarded.call("POST", PODS, pod(place=place, bitstream="evil"))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        'pods "p" is forbidden: variable FPGA_BITSTREAM_ID_1: the service account needs the verb'
        ' "use" for bitstreams.fpga.intel.com "evil"'
    )
    assert (await guarded.get(PODS))["items"] == []


async def test_a_pod_with_a_claim_and_another_bitstream_is_refused(guarded: LocalServer) -> None:
    claims = [{"name": "fpga", "resourceClaimName": "x"}]
    body = pod({"claims": [{"name": "fpga"}]}, bitstream="evil", resourceClaims=claims)
    assert (await guarded.call("POST", PODS, body)).status == 403


async def test_the_rights_are_those_of_the_pods_account_not_of_its_author(
    guarded: LocalServer,
) -> None:
    """The author is an administrator here."""
    answer = await guarded.call("POST", PODS, pod(serviceAccountName="other"))
    assert answer.status == 403


async def test_containers_without_devices_may_have_any_variables(guarded: LocalServer) -> None:
    limits = {"limits": {"cpu": "1"}}
    assert (await guarded.call("POST", PODS, pod(limits, bitstream="evil"))).status == 201


async def test_without_rules_nothing_is_checked(server: LocalServer) -> None:
    assert (await server.call("POST", PODS, pod(bitstream="evil"))).status == 201
