"""The order of API groups and versions in discovery: upstream's priorities of the built-in ones."""

from typing import Final, NamedTuple


class GroupPriority(NamedTuple):
    """A higher number comes first."""

    group: int
    version: int


APIREGISTRATION: Final = "apiregistration.k8s.io"
BUILT_IN: Final = {
    ("", "v1"): GroupPriority(18000, 1),
    ("apps", "v1"): GroupPriority(17800, 15),
    ("events.k8s.io", "v1"): GroupPriority(17750, 15),
    ("authentication.k8s.io", "v1"): GroupPriority(17700, 15),
    ("authorization.k8s.io", "v1"): GroupPriority(17600, 15),
    ("autoscaling", "v2"): GroupPriority(17500, 30),
    ("autoscaling", "v1"): GroupPriority(17500, 15),
    ("batch", "v1"): GroupPriority(17400, 15),
    ("certificates.k8s.io", "v1"): GroupPriority(17300, 15),
    ("networking.k8s.io", "v1"): GroupPriority(17200, 15),
    ("policy", "v1"): GroupPriority(17100, 15),
    ("rbac.authorization.k8s.io", "v1"): GroupPriority(17000, 15),
    ("storage.k8s.io", "v1"): GroupPriority(16800, 15),
    ("admissionregistration.k8s.io", "v1"): GroupPriority(16700, 15),
    ("apiextensions.k8s.io", "v1"): GroupPriority(16700, 15),
    ("scheduling.k8s.io", "v1"): GroupPriority(16600, 15),
    ("coordination.k8s.io", "v1"): GroupPriority(16500, 15),
    ("node.k8s.io", "v1"): GroupPriority(16300, 15),
    ("discovery.k8s.io", "v1"): GroupPriority(16200, 15),
    ("resource.k8s.io", "v1"): GroupPriority(16200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1"): GroupPriority(16100, 21),
}
"""Versions that have an APIService object from the start."""
CUSTOM: Final = GroupPriority(1000, 100)
"""Versions of custom resources, and of groups that only kedge has."""

_FIRST: Final = GroupPriority(20001, 15)
"""The group of APIServices themselves comes first; it has no APIService."""
_GROUPS: Final = {group: priority.group for (group, _), priority in BUILT_IN.items()}


def priority(group: str, version: str) -> GroupPriority:
    """Return the priority of a version that this server serves itself."""
    if group == APIREGISTRATION:
        return _FIRST
    return BUILT_IN.get((group, version), CUSTOM)


def group_rank(group: str) -> int:
    """Return a number by which groups that this server serves itself sort."""
    return -_FIRST.group if group == APIREGISTRATION else -_GROUPS.get(group, CUSTOM.group)
