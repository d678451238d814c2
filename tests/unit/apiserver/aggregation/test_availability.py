"""Why an APIService is available or not."""

from typing import Any

import pytest

from kedge.api.core_v1 import service
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1 import endpoint_slice
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.apiserver.aggregation.availability import (
    MESSAGE_LENGTH,
    PASSED,
    failed_check,
    service_problem,
    with_condition,
)
from kedge.apiserver.aggregation.remote_version import RemoteVersion
from kedge.apiserver.group_priorities import GroupPriority

REMOTE = RemoteVersion(
    name="v1.g",
    group="g",
    version="v1",
    namespace="ns",
    service="svc",
    port=443,
    ca_bundle="",
    is_insecure=False,
    priority=GroupPriority(1, 1),
    is_available=False,
)


def a_service(port: int = 443, **spec: Any) -> Service:
    ports = [{"name": "https", "port": port}]
    found: Service = service.RESOURCE.from_document(
        {"metadata": {"name": "svc"}, "spec": {"type": "ClusterIP", "ports": ports, **spec}}
    )
    return found


def a_slice(name: str = "https", *, ready: bool | None = None) -> EndpointSlice:
    endpoint: dict[str, Any] = {"addresses": ["10.0.0.1"]}
    if ready is not None:
        endpoint["conditions"] = {"ready": ready}
    found: EndpointSlice = endpoint_slice.RESOURCE.from_document(
        {
            "metadata": {"name": "s"},
            "addressType": "IPv4",
            "ports": [{"name": name, "port": 8443}],
            "endpoints": [endpoint],
        }
    )
    return found


@pytest.mark.parametrize(
    ("found", "slices", "reason", "message"),
    [
        (None, [], "ServiceNotFound", 'service/svc in "ns" is not present'),
        (a_service(80), [], "ServicePortError", 'service/svc in "ns" is not listening on port 443'),
        (
            a_service(),
            [],
            "EndpointsNotFound",
            'cannot find endpointslices for service/svc in "ns"',
        ),
        (
            a_service(),
            [a_slice(ready=False), a_slice("http")],
            "MissingEndpoints",
            'endpointslices for service/svc in "ns" have no addresses with port name "https"',
        ),
    ],
)
def test_a_service_that_leads_nowhere(
    found: Service | None, slices: list[EndpointSlice], reason: str, message: str
) -> None:
    assert service_problem(REMOTE, found, slices) == ("False", reason, message)


def test_a_server_behind_the_service_can_be_asked() -> None:
    assert service_problem(REMOTE, a_service(), [a_slice()]) is None
    outside = a_service(type="ExternalName", externalName="x")
    assert service_problem(REMOTE, outside, []) is None


def test_the_time_of_the_transition_changes_with_the_status_only() -> None:
    other = {"type": "Other", "status": "True"}
    document: dict[str, Any] = {"metadata": {}, "status": {"conditions": [other]}}
    failed = with_condition(document, failed_check("one"), "then")
    [kept, made] = failed["status"]["conditions"]
    assert kept == other
    assert made == {
        "type": "Available",
        "status": "False",
        "lastTransitionTime": "then",
        "reason": "FailedDiscoveryCheck",
        "message": "one",
    }
    again = with_condition(failed, failed_check("two"), "now")["status"]["conditions"][1]
    assert (again["lastTransitionTime"], again["message"]) == ("then", "two")
    passed = with_condition(failed, PASSED, "now")
    assert passed["status"]["conditions"][1]["lastTransitionTime"] == "now"
    assert with_condition(passed, PASSED, "later") == passed


def test_a_long_message_of_another_server_is_cut() -> None:
    assert len(failed_check("x" * 100_000).message) == MESSAGE_LENGTH
