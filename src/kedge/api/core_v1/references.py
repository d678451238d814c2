"""References from one object to another, and to one key or field of it.

A default made by a factory is written out even when empty, as Kubernetes does for such a field.
"""

from typing import Annotated

from msgspec import field

from kedge.api.model import Model, defaults_to
from kedge.machinery.quantity import Quantity

_ZERO = Quantity.parse("0")


class LocalObjectReference(Model):
    """Another object in the same namespace, by name."""

    __atomic__ = True

    name: Annotated[str, defaults_to("")] = ""
    """Name of the object."""


class ObjectReference(Model):
    """An object of any kind, and perhaps one part of it."""

    __atomic__ = True

    kind: str = ""
    """Kind of the object."""
    namespace: str = ""
    """Namespace of the object."""
    name: str = ""
    """Name of the object."""
    uid: str = ""
    """Uid of the object."""
    apiVersion: str = ""
    """API version of the object."""
    resourceVersion: str = ""
    """The version of the object that is meant, if one in particular is."""
    fieldPath: str = ""
    """The part of the object that is meant, for instance spec.containers{name}."""


class TypedLocalObjectReference(Model):
    """An object of a given kind in the same namespace."""

    __required__ = ("kind", "name")
    __atomic__ = True

    apiGroup: str | None = None
    """Group of the object's kind; nothing means the core group."""
    kind: str = ""
    """Kind of the object."""
    name: str = ""
    """Name of the object."""


class TypedObjectReference(Model):
    """An object of a given kind, perhaps in another namespace."""

    __required__ = ("kind", "name")

    apiGroup: str | None = None
    """Group of the object's kind; nothing means the core group."""
    kind: str = ""
    """Kind of the object."""
    name: str = ""
    """Name of the object."""
    namespace: str | None = None
    """Namespace of the object, if not the one of the referrer."""


class SecretReference(Model):
    """A secret in any namespace."""

    __atomic__ = True

    name: str = ""
    """Name of the secret."""
    namespace: str = ""
    """Namespace of the secret."""


class SecretKeySelector(Model):
    """One key of a secret."""

    __required__ = ("key",)
    __atomic__ = True

    name: str = ""
    """Name of the secret."""
    key: str = ""
    """The key whose value is taken."""
    optional: bool | None = None
    """Whether the secret or its key may be missing."""


class ConfigMapKeySelector(Model):
    """One key of a config map."""

    __required__ = ("key",)
    __atomic__ = True

    name: str = ""
    """Name of the config map."""
    key: str = ""
    """The key whose value is taken."""
    optional: bool | None = None
    """Whether the config map or its key may be missing."""


class FileKeySelector(Model):
    """One variable out of a file that a volume holds."""

    __required__ = ("volumeName", "path", "key")
    __atomic__ = True

    volumeName: str = ""
    """The volume that holds the file."""
    path: str = ""
    """Where the file is, relative to the volume's root."""
    key: str = ""
    """The variable to take from the file."""
    optional: bool | None = None
    """Whether the file or the variable may be missing."""


class ObjectFieldSelector(Model):
    """A field of the pod itself."""

    __required__ = ("fieldPath",)
    __atomic__ = True

    apiVersion: str = ""
    """The version in which the path is written; v1 unless said otherwise."""
    fieldPath: str = ""
    """The field, for instance metadata.name."""


class ResourceFieldSelector(Model):
    """An amount that a container requests or is limited to."""

    __required__ = ("resource",)
    __atomic__ = True

    containerName: str = ""
    """The container; needed in volumes, elsewhere it is the container itself."""
    resource: str = ""
    """Which amount, for instance limits.cpu."""
    divisor: Quantity = field(default_factory=lambda: _ZERO)
    """The unit of the amount; 0 stands for 1."""
