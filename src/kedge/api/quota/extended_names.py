"""The names under which quotas count devices as extended resources."""

from collections.abc import Collection, Iterable, Mapping

from kedge.api.core_v1.resource_names import REQUESTS_PREFIX
from kedge.api.resource_v1.device_class import DeviceClass
from kedge.api.resource_v1.extended_resources import DEVICE_CLASS_PREFIX

IMPLICIT_PREFIX = REQUESTS_PREFIX + DEVICE_CLASS_PREFIX
"""Followed by a class: the extended resource that each class has without naming one."""

ExtendedNames = Mapping[str, str]
"""For each class that names an extended resource: the implicit and the named resource, as quotas
write them."""


def extended_names(classes: Iterable[DeviceClass]) -> ExtendedNames:
    """Return the names of the extended resources of classes."""
    return {
        IMPLICIT_PREFIX + each.metadata.name: REQUESTS_PREFIX + each.spec.extendedResourceName
        for each in classes
        if each.spec.extendedResourceName is not None
    }


def can_be_extended(hard: Collection[str]) -> bool:
    """Whether a quota has a name that can be that of an extended resource."""
    return any(name.startswith(REQUESTS_PREFIX) and "/" in name for name in hard)


def shared_names(hard: Collection[str], extended: ExtendedNames) -> frozenset[str]:
    """Return the names of a quota under which both pods and claims count.

    As upstream: claims count as the implicit resource only if their class names one, too.
    """
    if not extended:
        return frozenset()
    return frozenset(hard) & {*extended, *extended.values()}
