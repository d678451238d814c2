"""Built-in kinds with two versions, whose objects are compared in each."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kedge.api.autoscaling_v1 import horizontal_pod_autoscaler
from kedge.api.events_v1 import event
from kedge.api.resource import Resource
from kedge.apiserver.object_versions import ObjectVersions, UnconvertibleObject, custom_versions
from kedge.machinery.schema import Schema

_VIEWS: Final[tuple[Resource[Any], ...]] = (horizontal_pod_autoscaler.RESOURCE, event.RESOURCE)
"""The kinds that are stored as another one."""


class BuiltinVersions:
    """The versions of a built-in kind in one group: the stored one, a view of it, or both.

    kube-apiserver cannot convert Events between their two groups. A write in one leaves off what
    managers own in the other.
    """

    def __init__(self, view: Resource[Any], group: str) -> None:
        assert view.store_as is not None
        self._view = view
        self._conversion = view.store_as
        both = (view, view.store_as.resource)
        self._resources = {each.api_version: each for each in both if each.group == group}

    def is_forgotten(self, api_version: str) -> bool:
        """Whether fields in a version are left off: no object can be converted to it."""
        return api_version not in self._resources

    def schema(self, api_version: str) -> Schema:
        return self._resources[api_version].schema

    def converted(self, document: dict[str, Any], api_version: str) -> dict[str, Any]:
        """Return a document in a version; raises UnconvertibleObject."""
        found = document.get("apiVersion", api_version)
        if found == api_version:
            return document
        is_view = found == self._view.api_version
        convert = self._conversion.to_stored if is_view else self._conversion.from_stored
        return convert(_typed(self._resources[found], document))


def _typed(resource: Resource[Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose fields have their types, which a merged one may not have."""
    try:
        return resource.to_document(resource.from_document(document))
    except (msgspec.ValidationError, ValueError) as error:
        group, _, version = resource.api_version.rpartition("/")
        kind = f"{group}/{version}, Kind={resource.kind}"
        told = f"unable to convert unstructured object to {kind}"
        raise UnconvertibleObject(f"{told}: {error}") from None


def _builtin(view: Resource[Any]) -> Iterator[tuple[tuple[str, str], BuiltinVersions]]:
    assert view.store_as is not None
    for each in (view, view.store_as.resource):
        yield (each.api_version, each.kind), BuiltinVersions(view, each.group)


_BUILTIN: Final = {key: each for view in _VIEWS for key, each in _builtin(view)}


def versions_of(resource: Resource[Any]) -> ObjectVersions | None:
    """Return the versions of a kind; None if it has no other version."""
    if resource.custom:
        return custom_versions(resource)
    return _BUILTIN.get((resource.api_version, resource.kind))
