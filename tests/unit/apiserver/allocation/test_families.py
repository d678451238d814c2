"""The IP families of Services in a cluster of IPv4."""

from typing import Any

import pytest

from kedge.api.core_v1.service_types import ServiceSpec
from kedge.apiserver.allocation.families import family_errors

TWO: dict[str, Any] = {"clusterIPs": ["10.96.0.9", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]}
NONE: dict[str, Any] = {"clusterIP": "None", "clusterIPs": ["None"]}


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ({}, None, []),
        ({"ipFamilyPolicy": "PreferDualStack"}, None, []),
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            None,
            ["this cluster is not configured for dual-stack services"],
        ),
        ({"ipFamilies": ["IPv6"]}, None, ["not configured on this cluster"]),
        ({"clusterIPs": ["fd00::1"]}, None, ["IPv6 is not configured on this cluster"]),
        ({**NONE, "ipFamilyPolicy": "RequireDualStack"}, None, []),
        (
            {**NONE, "ipFamilyPolicy": "RequireDualStack", "selector": {"a": "b"}},
            None,
            ["this cluster is not configured for dual-stack services"],
        ),
        ({"type": "ExternalName", "ipFamilyPolicy": "RequireDualStack"}, None, []),
        (
            TWO,
            None,
            [
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are"
                " specified",
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are"
                " specified",
            ],
        ),
        (
            {
                "clusterIPs": ["10.96.0.9"],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "PreferDualStack",
            },
            TWO,
            [
                "must be 'SingleStack' to release the secondary cluster IP",
                "must be 'SingleStack' to release the secondary IP family",
            ],
        ),
    ],
)
def test_errors(new: dict[str, Any], old: dict[str, Any] | None, expected: list[str]) -> None:
    before = ServiceSpec(**old) if old is not None else None
    found = family_errors(ServiceSpec(**new), before)
    assert len(found) == len(expected)
    assert all(str(error).endswith(why) for error, why in zip(found, expected, strict=True))
