"""Which claims are prepared on the node, for which pods."""

import pytest

from kedge.dra.messages import PreparedDevice
from kedge.node.resource_claims.claim_ledger import (
    ClaimError,
    ClaimKey,
    ClaimLedger,
    cdi_names,
)

KEY = ClaimKey("default", "c")
DEVICES = (
    PreparedDevice(request_names=["a"], pool_name="p", device_name="0", cdi_device_ids=["v/c=0"]),
    PreparedDevice(
        request_names=["b"], pool_name="p", device_name="1", cdi_device_ids=["v/c=1", "v/c=0"]
    ),
    PreparedDevice(pool_name="p", device_name="2", cdi_device_ids=["v/c=all"]),
)


def test_a_claim_is_there_until_its_last_pod_is_gone() -> None:
    ledger = ClaimLedger()
    claim = ledger.add(KEY, "u", ["d"], "pod-1")
    assert ledger.add(KEY, "u", ["d"], "pod-2") is claim
    assert ledger.pods() == {"pod-1", "pod-2"}
    ledger.release(claim, "pod-1")
    assert ledger.of_pod("pod-1") == []
    assert ledger.of_pod("pod-2") == [claim]
    ledger.release(claim, "pod-2")
    assert ledger.claims == {}


def test_another_claim_of_the_same_name_must_wait() -> None:
    ledger = ClaimLedger()
    ledger.add(KEY, "old", ["d"], "pod-1")
    with pytest.raises(ClaimError) as caught:
        ledger.add(KEY, "new", ["d"], "pod-2")
    assert str(caught.value) == (
        "old ResourceClaim with same name c and different UID old still exists "
        "(previous pod force-deleted?!)"
    )


@pytest.mark.parametrize(
    ("requests", "names"),
    [
        ([""], ["v/c=0", "v/c=1", "v/c=all"]),
        (["a"], ["v/c=0", "v/c=all"]),
        (["b"], ["v/c=1", "v/c=0", "v/c=all"]),
        (["a", "b"], ["v/c=0", "v/c=all", "v/c=1"]),
        (["none"], ["v/c=all"]),
    ],
)
def test_a_container_gets_the_devices_of_its_requests(
    requests: list[str], names: list[str]
) -> None:
    claim = ClaimLedger().add(KEY, "u", ["d"], "pod")
    claim.drivers["d"] = DEVICES
    assert cdi_names([(claim, requests)]) == names


def test_the_pods_of_a_device_are_found() -> None:
    ledger = ClaimLedger()
    ledger.add(KEY, "u", ["d"], "pod").drivers["d"] = DEVICES
    assert ledger.with_device("d", {("p", "1")}) == {"pod"}
    assert ledger.with_device("d", {("p", "9")}) == set()
    assert ledger.with_device("other", {("p", "1")}) == set()
