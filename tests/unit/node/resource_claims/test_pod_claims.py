"""The claims of pods and containers, and whether a pod may use one."""

from typing import Any

import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.resource_v1 import resource_claim
from kedge.node.resource_claims.claim_ledger import ClaimError
from kedge.node.resource_claims.pod_claims import (
    PodClaimName,
    base_request,
    checked,
    claims_of,
    requests_of,
)
from kedge.testing.pods import pod_document


def pod(claims: Any, status: Any = None, used: Any = (), **container: Any) -> Pod:
    resources = {"claims": list(used), **container}
    document = pod_document(
        metadata={"uid": "u"}, spec={"resourceClaims": claims}, container={"resources": resources}
    )
    return RESOURCE.from_document(document | {"status": status or {}})


NAMED = {"name": "a", "resourceClaimName": "shared"}
TEMPLATE = {"name": "b", "resourceClaimTemplateName": "t"}
EXTENDED = {
    "resourceClaimName": "made",
    "requestMappings": [
        {"containerName": "ctr", "resourceName": "example.com/x", "requestName": "container-0"},
        {"containerName": "other", "resourceName": "example.com/x", "requestName": "container-1"},
        {"containerName": "ctr", "resourceName": "example.com/y", "requestName": "container-2"},
    ],
}


def test_claims_are_found_by_name_and_by_status() -> None:
    statuses = {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "generated"}]}
    assert claims_of(pod([NAMED, TEMPLATE], statuses)) == [
        PodClaimName("a", "shared", False),
        PodClaimName("b", "generated", True),
    ]
    assert claims_of(pod([], {"extendedResourceClaimStatus": EXTENDED})) == [
        PodClaimName("", "made", False)
    ]


def test_a_template_that_needs_no_claim_is_left_out() -> None:
    assert claims_of(pod([TEMPLATE], {"resourceClaimStatuses": [{"name": "b"}]})) == []


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (TEMPLATE, 'pod "default/pod": ResourceClaim not created yet'),
        (
            {"name": "c"},
            'pod "default/pod", spec.resourceClaim "c": none of the supported fields are set',
        ),
    ],
)
def test_a_claim_that_does_not_exist_yet_is_an_error(entry: Any, error: str) -> None:
    with pytest.raises(ClaimError) as caught:
        claims_of(pod([entry]))
    assert str(caught.value) == error


def test_a_container_uses_requests_of_claims() -> None:
    other = {"name": "b", "resourceClaimName": "second"}
    made = pod([NAMED, other], used=[{"name": "a", "request": "r"}, {"name": "b"}])
    assert requests_of(made, made.spec.containers[0]) == {"shared": ["r"], "second": [""]}
    made = pod([NAMED])
    assert requests_of(made, made.spec.containers[0]) == {}


def test_a_container_uses_the_claim_for_its_extended_resources() -> None:
    made = pod([], {"extendedResourceClaimStatus": EXTENDED}, requests={"example.com/x": "1"})
    assert requests_of(made, made.spec.containers[0]) == {"made": ["container-0"]}


def test_a_subrequest_belongs_to_its_request() -> None:
    assert base_request("gpu/big") == base_request("gpu") == "gpu"


# The claim's object.

RESULTS = [
    {"request": "r", "driver": "d.example.com", "pool": "p", "device": "0"},
    {"request": "s", "driver": "e.example.com", "pool": "p", "device": "0"},
    {"request": "t", "driver": "d.example.com", "pool": "p", "device": "1"},
]


def claim(*, reserved: str = "u", owner: str = "u", allocated: bool = True) -> Any:
    allocation = {"allocation": {"devices": {"results": RESULTS}}} if allocated else {}
    return resource_claim.RESOURCE.from_document(
        {
            "metadata": {
                "name": "c",
                "namespace": "default",
                "uid": "cu",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": owner}
                    | {"controller": True}
                ],
            },
            "spec": {},
            "status": {"reservedFor": [{"resource": "pods", "name": "pod", "uid": reserved}]}
            | allocation,
        }
    )


def test_a_claim_names_its_drivers_once() -> None:
    found = checked(pod([]), PodClaimName("a", "c", False), claim())
    assert found == ("cu", ("d.example.com", "e.example.com"))


@pytest.mark.parametrize(
    ("made", "generated", "error"),
    [
        (
            claim(reserved="other"),
            False,
            "pod pod (u) is not allowed to use ResourceClaim c (cu)",
        ),
        (claim(allocated=False), False, "ResourceClaim c: not allocated"),
        (
            claim(owner="other"),
            True,
            "ResourceClaim default/c was not created for Pod default/pod (Pod is not owner)",
        ),
    ],
)
def test_a_claim_of_others_is_refused(made: Any, generated: bool, error: str) -> None:
    with pytest.raises(ClaimError) as caught:
        checked(pod([]), PodClaimName("a", "c", generated), made)
    assert str(caught.value) == error


def test_the_owner_matters_only_for_generated_claims() -> None:
    assert checked(pod([]), PodClaimName("a", "c", False), claim(owner="other")).uid == "cu"
