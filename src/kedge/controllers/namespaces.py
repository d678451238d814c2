"""Namespaces, reduced to the fields that controllers read."""

import msgspec

from kedge.api.core_v1.namespace import ACTIVE, RESOURCE
from kedge.client.informer import Cache
from kedge.client.view import View, sketches
from kedge.machinery.errors import StatusError

TERMINATING_CAUSE = "NamespaceTerminating"


class _NamespaceMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    deletion_timestamp: str = ""


class _NamespaceStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class NamespaceOutline(msgspec.Struct, frozen=True, gc=False):
    """A namespace, reduced to its name and whether it is terminating."""

    metadata: _NamespaceMeta
    status: _NamespaceStatus = _NamespaceStatus()

    @property
    def active(self) -> bool:
        return self.status.phase == ACTIVE and not self.metadata.deletion_timestamp


Namespaces = Cache[NamespaceOutline]


def view() -> View[NamespaceOutline]:
    return sketches(RESOURCE, NamespaceOutline)


def is_active(namespaces: Namespaces, name: str) -> bool:
    found = namespaces.get(name)
    return found is not None and found.active


def is_leaving(error: StatusError) -> bool:
    """Whether a write failed because its namespace is leaving or has left."""
    if any(cause.reason == TERMINATING_CAUSE for cause in error.causes):
        return True
    return error.code == 404 and (error.details or {}).get("kind") == "namespaces"
