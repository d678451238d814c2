from typing import Any

import pytest

from kedge.api.quota.extended_names import IMPLICIT_PREFIX
from kedge.api.quota.resource_claims import ResourceClaimQuotaMeter
from kedge.api.resource_v1.resource_claim import RESOURCE, ResourceClaim

METER = ResourceClaimQuotaMeter()
COUNT = "count/resourceclaims.resource.k8s.io"


def claim(*requests: dict[str, Any]) -> ResourceClaim:
    return RESOURCE.from_document({"spec": {"devices": {"requests": list(requests)}}})


def wish(class_: str, mode: str = "ExactCount", count: int | None = None) -> dict[str, Any]:
    wish = {"deviceClassName": class_, "allocationMode": mode}
    return wish if count is None else wish | {"count": count}


def devices(class_: str) -> str:
    return f"{class_}.deviceclass.resource.k8s.io/devices"


def shown(obj: ResourceClaim) -> dict[str, str]:
    usage = METER.measure(obj).usage.items()
    return {name: str(amount) for name, amount in usage if not name.startswith(IMPLICIT_PREFIX)}


def test_devices_add_up_by_class() -> None:
    one, two = wish("gold", count=1), wish("gold", count=2)
    obj = claim({"exactly": one}, {"exactly": two}, {"exactly": wish("iron", count=1)})
    assert shown(obj) == {COUNT: "1", devices("gold"): "3", devices("iron"): "1"}


def test_of_alternatives_each_class_counts_with_the_largest() -> None:
    alternatives = [wish("gold", count=1), wish("gold", count=4), wish("iron", count=2)]
    obj = claim({"firstAvailable": alternatives}, {"exactly": wish("gold", count=1)})
    assert shown(obj) == {COUNT: "1", devices("gold"): "5", devices("iron"): "2"}


def test_all_devices_count_as_the_most_a_claim_can_get() -> None:
    assert shown(claim({"exactly": wish("gold", "All")}))[devices("gold")] == "32"


def test_a_mode_that_is_not_known_takes_no_devices() -> None:
    assert shown(claim({"exactly": wish("gold", "Some")}))[devices("gold")] == "0"


@pytest.mark.parametrize("obj", [claim(), ResourceClaim(), claim({"name": "of-a-later-release"})])
def test_a_claim_to_nothing_counts_only_itself(obj: ResourceClaim) -> None:
    assert shown(obj) == {COUNT: "1"}


def test_names_by_device_class_belong_to_claims() -> None:
    names = [COUNT, devices("a.b"), "gold.deviceclass.resource.k8s.io/other", "pods"]
    assert METER.names(names) == {COUNT, devices("a.b")}


def test_a_request_without_a_count_takes_no_devices() -> None:
    assert shown(claim({"exactly": wish("gold")}))[devices("gold")] == "0"


def test_a_claim_must_specify_nothing() -> None:
    assert METER.missing(claim({"exactly": wish("gold")}), [devices("gold")]) == ""
