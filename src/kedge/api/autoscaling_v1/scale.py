"""Scale: how many replicas an object of any kind has and wants, as its scale subresource shows."""

from collections.abc import Iterator

from msgspec import field

from kedge.api import rules
from kedge.api.model import Int32, Model, Object
from kedge.api.presentation import Column, age_column
from kedge.machinery.errors import FieldError


class ScaleSpec(Model):
    """The replicas that are wanted."""

    replicas: Int32 = 0
    """How many replicas are wanted."""


class ScaleStatus(Model):
    """The replicas there are."""

    __required__ = ("replicas",)

    replicas: Int32 = field(default_factory=int)
    """How many replicas there are."""
    selector: str = ""
    """Selects the pods of the object, as text."""


class Scale(Object):
    """How many replicas an object has and wants."""

    spec: ScaleSpec = field(default_factory=ScaleSpec)
    """The replicas that are wanted."""
    status: ScaleStatus = field(default_factory=ScaleStatus)
    """The replicas there are."""


def validate(obj: Scale) -> Iterator[FieldError]:
    yield from rules.nonnegative("spec.replicas", obj.spec.replicas)


# A Scale lives only as part of another object, so it has columns but is no Resource.
COLUMNS = (
    Column(name="Name", cell=lambda obj: obj.metadata.name),
    Column(
        name="Desired",
        type="integer",
        description="How many replicas are wanted.",
        cell=lambda obj: obj.spec.replicas,
    ),
    Column(
        name="Available",
        type="integer",
        description="How many replicas there are.",
        cell=lambda obj: obj.status.replicas,
    ),
    age_column(),
)
