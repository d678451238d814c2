"""The ranges of cluster IPs."""

from ipaddress import IPv4Network
from random import Random
from typing import Any

import pytest

from kedge.apiserver.allocation.address_ranges import (
    AddressRange,
    draw_address,
    fault,
    ranges_of,
)

DEFAULT = IPv4Network("10.96.0.0/16")
SMALL = IPv4Network("10.200.0.0/29")


def service_cidr(name: str, *cidrs: str, ready: str = "", deleted: bool = False) -> dict[str, Any]:
    meta = {"name": name} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    return {"metadata": meta, "spec": {"cidrs": cidrs}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([], [AddressRange(DEFAULT)], id="before the object exists"),
        pytest.param(
            [service_cidr("kubernetes", str(DEFAULT), ready="True")],
            [AddressRange(DEFAULT)],
            id="the default",
        ),
        pytest.param(
            [service_cidr("kubernetes", str(DEFAULT), deleted=True)],
            [AddressRange(DEFAULT, is_ready=False)],
            id="being deleted",
        ),
        pytest.param(
            [service_cidr("a", str(SMALL), ready="False")],
            [AddressRange(DEFAULT), AddressRange(SMALL, is_ready=False)],
            id="not ready",
        ),
        pytest.param(
            [service_cidr("a", str(SMALL), ready="False"), service_cidr("b", str(SMALL))],
            [AddressRange(DEFAULT), AddressRange(SMALL)],
            id="one of two is ready",
        ),
        pytest.param(
            [service_cidr("a", str(SMALL), "fd00::/108")],
            [AddressRange(DEFAULT), AddressRange(SMALL)],
            id="of IPv4 only",
        ),
    ],
)
def test_ranges_of_the_objects(objects: list[Any], expected: list[AddressRange]) -> None:
    assert ranges_of(objects) == expected


def test_the_default_range_of_another_cluster_is_the_first_there() -> None:
    objects = [service_cidr("a", str(DEFAULT)), service_cidr("kubernetes", str(SMALL))]
    assert ranges_of([], SMALL) == [AddressRange(SMALL)]
    assert ranges_of(objects, SMALL) == [AddressRange(SMALL), AddressRange(DEFAULT)]


def test_a_range_gives_every_host_address_once() -> None:
    taken: set[str] = set()
    while address := AddressRange(SMALL).draw(taken.__contains__, Random(2)):
        taken.add(address)
    assert taken == {f"10.200.0.{number}" for number in range(1, 7)}


def test_the_next_range_is_used_when_one_is_full_or_not_ready() -> None:
    ranges = [AddressRange(DEFAULT, is_ready=False), AddressRange(SMALL)]
    assert (draw_address(ranges, lambda _: False, Random(1)) or "").startswith("10.200.0.")
    assert draw_address(ranges, lambda _: True, Random(1)) is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.200.0.3", ""),
        ("10.96.0.9", "allocator not ready"),
        ("10.200.0.0", "is not in the valid range"),
        ("10.200.0.7", "is not in the valid range"),
        ("192.0.2.1", "The range of valid IPs is 10.96.0.0/16, 10.200.0.0/29"),
    ],
)
def test_why_an_address_is_refused(address: str, expected: str) -> None:
    found = fault([AddressRange(DEFAULT, is_ready=False), AddressRange(SMALL)], address)
    assert expected in found if expected else not found
