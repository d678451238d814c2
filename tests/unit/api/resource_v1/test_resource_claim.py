from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.resource_v1 import device_selector, resource_claim, sizes
from kedge.api.resource_v1.resource_claim import RESOURCE, ResourceClaim
from kedge.api.strategy import Strategy
from kedge.machinery.cel import CelError

CASES = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text())
STRATEGY: Strategy[ResourceClaim] = RESOURCE.strategy
RESULT = {"request": "a", "driver": "d.example", "pool": "p", "device": "gpu-0"}
POD = {"resource": "pods", "name": "pod", "uid": "u1"}


def claim(devices: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> Any:
    asked = devices or {"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}]}
    document = {"metadata": {"name": "x"}, "spec": {"devices": asked}, "status": status or {}}
    return STRATEGY.default(RESOURCE.from_document(document))


def allocated(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"allocation": {"devices": {"results": list(results)}}, **more}


def status_errors(new: ResourceClaim, old: ResourceClaim) -> list[str]:
    return [str(error) for error in STRATEGY.validate_status(new, old)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_claims_are_validated_as_kubernetes_does(case: dict[str, Any]) -> None:
    found = [str(error) for error in STRATEGY.validate_new(claim(case["devices"]))]
    assert found == case["errors"]


def test_requests_ask_for_one_device_by_default() -> None:
    requests = [{"name": "a", "exactly": {}}, {"name": "b", "exactly": {"allocationMode": "All"}}]
    shown = RESOURCE.to_document(claim({"requests": requests}))["spec"]["devices"]["requests"]
    assert shown == [
        {"name": "a", "exactly": {"allocationMode": "ExactCount", "count": 1}},
        {"name": "b", "exactly": {"allocationMode": "All"}},
    ]


def test_a_new_claim_has_a_status_to_patch() -> None:
    assert RESOURCE.to_document(claim())["status"] == {}


def test_the_spec_cannot_be_changed() -> None:
    other = claim({"requests": [{"name": "b", "exactly": {"deviceClassName": "c"}}]})
    [error] = [str(error) for error in STRATEGY.validate_update(other, claim())]
    assert error == (
        'spec: Invalid value: {"Devices":{"Requests":[{"Name":"b","Exactly":{"DeviceClassName":"c",'
        '"Selectors":null,"AllocationMode":"ExactCount","Count":1,"AdminAccess":null,'
        '"Tolerations":null,"Capacity":null},"FirstAvailable":null}],"Constraints":null,'
        '"Config":null}}: field is immutable'
    )
    assert list(STRATEGY.validate_update(claim(), claim())) == []


def test_an_allocation_names_a_request_of_the_claim() -> None:
    assert status_errors(claim(status=allocated(RESULT)), claim()) == []
    assert status_errors(claim(status=allocated({**RESULT, "request": "z"})), claim()) == [
        'status.allocation.devices.results[0].request: Invalid value: "z": must be the name of a '
        "request in the claim or the name of a request and a subrequest separated by '/'"
    ]


def test_an_allocation_cannot_be_changed_but_removed() -> None:
    old = claim(status=allocated(RESULT))
    [error] = status_errors(claim(status=allocated({**RESULT, "device": "gpu-1"})), old)
    assert error.startswith('status.allocation: Invalid value: {"Devices":{"Results":[{"Request"')
    assert error.endswith("field is immutable")
    assert status_errors(claim(), old) == []


def test_only_an_allocated_claim_is_reserved() -> None:
    assert status_errors(claim(status={"reservedFor": [POD]}), claim()) == [
        "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    ]


def test_a_consumer_is_named_in_full_and_once() -> None:
    new = claim(status=allocated(RESULT, reservedFor=[POD, POD, {"resource": "pods"}]))
    assert status_errors(new, claim()) == [
        "status.reservedFor[2].name: Required value",
        "status.reservedFor[2].uid: Required value",
        'status.reservedFor[1]: Duplicate value: "u1"',
    ]


def test_a_claim_that_is_being_deleted_gets_no_new_consumers() -> None:
    document = RESOURCE.to_document(claim(status=allocated(RESULT, reservedFor=[POD])))
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new = RESOURCE.from_document(document)
    assert status_errors(new, claim(status=allocated(RESULT))) == [
        "status.reservedFor: Forbidden: new entries may not be added while "
        "`deallocationRequested` or `deletionTimestamp` are set"
    ]
    assert status_errors(new, new) == []


def test_the_state_of_a_device_belongs_to_an_allocated_device() -> None:
    device = {"driver": "d.example", "pool": "p", "device": "gpu-1"}
    new = claim(status=allocated(RESULT, devices=[device]))
    assert status_errors(new, claim()) == [
        'status.devices[0]: Invalid value: {"Driver":{},"Pool":{},"Device":{},"ShareID":{}}: '
        "must be an allocated device in the claim"
    ]


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("10.0.0.1/24", ""),
        ("2001:db8::1/64", ""),
        ("10.0.0.1", "must be a valid address in CIDR form"),
        ("2001:0db8::1/64", 'must be in canonical form ("2001:db8::1/64")'),
    ],
)
def test_addresses_of_network_devices_are_canonical(address: str, why: str) -> None:
    device = {**RESULT, "networkData": {"ips": [address]}}
    del device["request"]
    found = status_errors(claim(status=allocated(RESULT, devices=[device])), claim())
    assert [why in each and bool(why) for each in found] == [True] * bool(why)


def test_the_state_of_devices_goes_with_the_allocation() -> None:
    device = {key: value for key, value in RESULT.items() if key != "request"}
    old = claim(status=allocated(RESULT, devices=[device]))
    new = claim(status={"devices": [device]})
    assert STRATEGY.prepare_for_status_update(new, old).status.devices == ()


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "pending"),
        ({"allocation": {}}, "allocated"),
        ({"allocation": {}, "reservedFor": [POD]}, "allocated,reserved"),
    ],
)
def test_claims_show_their_state(status: dict[str, Any], state: str) -> None:
    assert resource_claim.state_cell(claim(status=status)) == state


def test_an_expression_that_does_not_compile_is_refused() -> None:
    selector = {"cel": {"expression": "device.driver =="}}
    request = {"name": "a", "exactly": {"deviceClassName": "c", "selectors": [selector]}}
    [error] = STRATEGY.validate_new(claim({"requests": [request]}))
    assert error.field == "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert "compilation failed" in error.body
    with pytest.raises(CelError):
        device_selector.compiled("device.driver ==")


def test_an_expression_has_a_largest_size() -> None:
    selector = {"cel": {"expression": "true" + " " * sizes.EXPRESSION_CHARACTERS}}
    request = {"name": "a", "exactly": {"deviceClassName": "c", "selectors": [selector]}}
    [error] = STRATEGY.validate_new(claim({"requests": [request]}))
    assert error.body == "Too long: may not be more than 10240 bytes"
