"""The part of a claim that concerns one driver."""

from typing import Any

import pytest

from kedge.api.resource_v1 import resource_claim
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.dra.allocated_claim import AllocatedDevice, ClaimNotReady, allocated_claim

MINE, OTHER = "d.example.com", "e.example.com"


def opaque(value: str, *requests: str, driver: str = MINE, source: str = "FromClaim") -> Any:
    parameters = {"driver": driver, "parameters": {"v": value}}
    return {"source": source, "requests": list(requests), "opaque": parameters}


def claim(**allocation: Any) -> ResourceClaim:
    status = {"allocation": {"devices": allocation}} if allocation else {}
    return resource_claim.RESOURCE.from_document(
        {
            "metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "spec": {},
            "status": status,
        }
    )


def test_devices_and_parameters_are_those_of_the_driver() -> None:
    made = claim(
        results=[
            {"request": "r", "driver": MINE, "pool": "p", "device": "0", "shareID": "s"},
            {"request": "r", "driver": OTHER, "pool": "p", "device": "1"},
            {"request": "q/big", "driver": MINE, "pool": "p", "device": "2", "adminAccess": True},
        ],
        config=[
            opaque("class", source="FromClass"),
            opaque("r", "r"),
            opaque("q", "q"),
            opaque("big", "q/big"),
            opaque("small", "q/small"),
            opaque("other", driver=OTHER),
        ],
    )
    found = allocated_claim(made, MINE, "u")
    assert (found.namespace, found.name, found.uid) == ("n", "c", "u")
    assert list(found.devices) == [
        AllocatedDevice(
            request="r",
            pool="p",
            device="0",
            parameters=[{"v": "class"}, {"v": "r"}],
            share_id="s",
        ),
        AllocatedDevice(
            request="q/big",
            pool="p",
            device="2",
            parameters=[{"v": "class"}, {"v": "q"}, {"v": "big"}],
            is_for_administration=True,
        ),
    ]


@pytest.mark.parametrize(
    ("made", "uid", "error"),
    [
        (claim(results=[]), "old", "claim n/c got replaced"),
        (claim(), "u", "claim n/c not allocated"),
    ],
)
def test_another_claim_cannot_be_prepared(made: ResourceClaim, uid: str, error: str) -> None:
    with pytest.raises(ClaimNotReady) as caught:
        allocated_claim(made, MINE, uid)
    assert str(caught.value) == error
