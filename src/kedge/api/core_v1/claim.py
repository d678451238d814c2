"""The spec of a volume claim, in claims and in claim templates."""

from collections.abc import Mapping, Sequence

from msgspec import field

from kedge.api.core_v1.references import TypedLocalObjectReference, TypedObjectReference
from kedge.api.model import LabelSelector, Model, ObjectMeta
from kedge.machinery.quantity import Quantity


class VolumeResourceRequirements(Model):
    """How much storage a claim asks for."""

    limits: Mapping[str, Quantity] = {}
    """Most that may be given."""
    requests: Mapping[str, Quantity] = {}
    """Least that must be given; storage is the one that counts."""


class PersistentVolumeClaimSpec(Model):
    """The requirements on the volume."""

    accessModes: Sequence[str] = ()
    """How it is to be mounted: ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod."""
    selector: LabelSelector | None = None
    """Selects the volumes that will do, by label."""
    resources: VolumeResourceRequirements = field(default_factory=VolumeResourceRequirements)
    """How much storage is wanted."""
    volumeName: str = ""
    """The volume that the claim is bound to."""
    storageClassName: str | None = None
    """The storage class; empty means volumes without a class, absent the default class."""
    volumeMode: str | None = None
    """Filesystem or Block. Default Filesystem."""
    dataSource: TypedLocalObjectReference | None = None
    """A snapshot or claim to fill the volume from, in the same namespace."""
    dataSourceRef: TypedObjectReference | None = None
    """An object of any kind to fill the volume from."""
    volumeAttributesClassName: str | None = None
    """The class of attributes that may change during the volume's life."""


class PersistentVolumeClaimTemplate(Model):
    """A claim to be made for each pod."""

    __required__ = ("spec",)

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    """Labels and annotations of the claim; nothing else is allowed."""
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    """The spec of the claim."""
