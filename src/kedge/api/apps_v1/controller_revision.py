"""ControllerRevision: a past template of a StatefulSet or DaemonSet, to go back to."""

from collections.abc import Iterator

from msgspec import field

from kedge.api import rules
from kedge.api.apps_v1 import workload
from kedge.api.model import Json, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError


class ControllerRevision(Object):
    """A snapshot of the part of a workload that makes its pods. Cannot be changed."""

    __required__ = ("revision",)

    data: Json = None
    """The snapshot, in whatever form its controller likes."""
    revision: int = field(default_factory=int)
    """Which of the snapshots this is; later ones have higher numbers."""


def validate(obj: ControllerRevision) -> Iterator[FieldError]:
    yield from rules.nonnegative("revision", obj.revision)
    if obj.data is None:
        yield FieldError.required("data", "data is mandatory")
    elif not isinstance(obj.data, dict):
        yield FieldError.required("data", "data must be a valid JSON object")


def validate_update(new: ControllerRevision, old: ControllerRevision) -> Iterator[FieldError]:
    yield from workload.unchanged("data", new.data, old.data)


def controller_cell(obj: ControllerRevision) -> str:
    """`statefulset.apps/web`, or `<none>` for an orphan."""
    for owner in obj.metadata.ownerReferences:
        if owner.controller:
            group = owner.apiVersion.rpartition("/")[0]
            kind = f"{owner.kind}.{group}" if group else owner.kind
            return f"{kind.lower()}/{owner.name}"
    return workload.NONE


RESOURCE: Resource[ControllerRevision] = Resource(
    type=ControllerRevision,
    group="apps",
    plural="controllerrevisions",
    strategy=Strategy(validate=validate, validate_update=validate_update, counts_generation=False),
    presentation=Presentation(
        columns=[
            name_column(),
            Column(name="Controller", description="Whose snapshot it is.", cell=controller_cell),
            Column(
                name="Revision",
                description="Which of the snapshots this is.",
                cell=lambda obj: obj.revision,
            ),
            age_column(),
        ]
    ),
)
