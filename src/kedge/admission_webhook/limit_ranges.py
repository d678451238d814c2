"""LimitRanges of the group kedge.dev: the kind, and those of the cluster by namespace.

The API server of Kubernetes drops fields that it does not know, so `selector` and `impliedDefaults`
cannot be stored in a LimitRange of its own. A custom resource with the same spec can hold them.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1 import limit_range
from kedge.api.core_v1.limit_range import LimitRange
from kedge.api.limits.bounds import NamespaceLimits, bounds_of
from kedge.api.resource import Resource
from kedge.machinery.errors import FieldError, enough, unavailable

GROUP: Final = "kedge.dev"
VERSION: Final = "v1"
PLURAL: Final = "limitranges"
RESOURCE: Final[Resource[LimitRange]] = replace(
    limit_range.RESOURCE, group=GROUP, version=VERSION, kind="LimitRange"
)


class InvalidLimitRange(Exception):
    """A stored LimitRange that the webhook did not check when it was written."""


class LimitRangesByNamespace:
    """A Receiver that keeps the LimitRanges, combined when they are asked for."""

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, LimitRange]] = {}
        self._bounds: dict[str, NamespaceLimits] = {}
        """The combined limits, dropped when a LimitRange of the namespace changes."""

    def replace(self, objects: Iterable[LimitRange]) -> None:
        self._ranges.clear()
        self._bounds.clear()
        for obj in objects:
            self.put(obj)

    def put(self, obj: LimitRange) -> None:
        namespace = obj.metadata.namespace
        self._bounds.pop(namespace, None)
        self._ranges.setdefault(namespace, {})[obj.metadata.name] = obj

    def remove(self, obj: LimitRange) -> None:
        namespace = obj.metadata.namespace
        self._bounds.pop(namespace, None)
        known = self._ranges.get(namespace, {})
        known.pop(obj.metadata.name, None)
        if not known:
            self._ranges.pop(namespace, None)

    def bounds(self, namespace: str) -> NamespaceLimits | None:
        """Return the limits of a namespace; None if it has no LimitRange of this group.

        Raises a StatusError if one of them is invalid: written while no webhook checked it. To
        ignore it would let pods pass that it was to refuse.
        """
        made = self._bounds.get(namespace)
        if made is None and namespace in self._ranges:
            ranges = [limit_range.default(each) for each in self._ranges[namespace].values()]
            for each in ranges:
                if errors := problems(each):
                    raise unavailable(
                        f"LimitRange {each.metadata.name} of {GROUP} in namespace {namespace} is"
                        f" invalid, correct or delete it: {'; '.join(map(str, errors))}"
                    )
            made = self._bounds[namespace] = bounds_of(ranges)
        return made


def problems(obj: LimitRange) -> list[FieldError]:
    """Return everything wrong with a LimitRange that has its defaults."""
    return enough(limit_range.validate(obj))
