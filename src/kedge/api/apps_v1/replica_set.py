"""ReplicaSet: keeps a number of identical pods running."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.apps_v1 import workload
from kedge.api.core_v1.pod.defaults import default_template
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.model import Int32, LabelSelector, Model, Object, Time, keyed
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import SCALE, STATUS, Resource, ScalePaths
from kedge.api.strategy import Strategy, with_change_of_spec
from kedge.machinery.errors import FieldError


class ReplicaSetSpec(Model):
    """The pods that are wanted."""

    __required__ = ("selector",)

    replicas: Int32 | None = None
    """How many pods are wanted. Default 1."""
    minReadySeconds: Int32 = 0
    """How long a pod must be ready to count as available."""
    selector: LabelSelector | None = None
    """Labels by which the pods are known; cannot be changed."""
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    """The template of new pods."""


class ReplicaSetCondition(Model):
    """One aspect of a set's state."""

    __required__ = ("type", "status")

    type: str = ""
    """The type of the condition, for instance ReplicaFailure."""
    status: str = ""
    """True, False or Unknown."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""


class ReplicaSetStatus(Model):
    """The pods there are."""

    __required__ = ("replicas",)

    replicas: Int32 = field(default_factory=int)
    """How many pods there are."""
    fullyLabeledReplicas: Int32 = 0
    """How many have all labels of the template."""
    readyReplicas: Int32 = 0
    """How many are ready."""
    availableReplicas: Int32 = 0
    """How many have been ready long enough."""
    terminatingReplicas: Int32 | None = None
    """How many are about to end."""
    observedGeneration: int = 0
    """The generation that this status is about."""
    conditions: Annotated[Sequence[ReplicaSetCondition], keyed("type")] = ()
    """Aspects of its state."""


class ReplicaSet(Object):
    """Keeps a number of like pods running."""

    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)
    """The pods that are wanted."""
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)
    """The pods there are."""


def default(obj: ReplicaSet) -> ReplicaSet:
    replicas = 1 if obj.spec.replicas is None else obj.spec.replicas
    template = default_template(obj.spec.template)
    return replace(obj, spec=replace(obj.spec, replicas=replicas, template=template))


def validate(obj: ReplicaSet) -> Iterator[FieldError]:
    spec = obj.spec
    yield from rules.nonnegative("spec.replicas", spec.replicas)
    yield from rules.nonnegative("spec.minReadySeconds", spec.minReadySeconds)
    # Upstream says deployment here as well.
    yield from workload.validate_selector(spec.selector, "deployment")
    if workload.is_readable(spec.selector):
        yield from workload.validate_pods(spec.selector, spec.template, "ReplicaSet")
    else:
        yield FieldError.invalid("spec.selector", spec.selector, "invalid label selector")


def validate_update(new: ReplicaSet, old: ReplicaSet) -> Iterator[FieldError]:
    yield from workload.unchanged("spec.selector", new.spec.selector, old.spec.selector)


_PARTS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
_COUNTS = ("replicas", *_PARTS, "observedGeneration", "terminatingReplicas")


def validate_status(new: ReplicaSet, old: ReplicaSet) -> Iterator[FieldError]:
    status = new.status
    yield from workload.validate_counts(status, _COUNTS)
    yield from workload.validate_parts(status, _PARTS)
    if status.availableReplicas > status.readyReplicas:
        why = "cannot be greater than readyReplicas"
        yield FieldError.invalid("status.availableReplicas", status.availableReplicas, why)


RESOURCE: Resource[ReplicaSet] = Resource(
    type=ReplicaSet,
    group="apps",
    plural="replicasets",
    subresources=[SCALE, STATUS],
    scale=ScalePaths(),
    strategy=Strategy(
        default=default,
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
        warnings=workload.warn,
        warns_on_update=with_change_of_spec,
    ),
    presentation=Presentation(
        short_names=["rs"],
        categories=["all"],
        columns=[
            name_column(),
            Column(
                name="Desired",
                type="integer",
                description="How many pods are wanted.",
                cell=lambda obj: obj.spec.replicas or 0,
            ),
            Column(
                name="Current",
                type="integer",
                description="How many there are.",
                cell=lambda obj: obj.status.replicas,
            ),
            Column(
                name="Ready",
                type="integer",
                description="How many are ready.",
                cell=lambda obj: obj.status.readyReplicas,
            ),
            age_column(),
            *workload.template_columns(
                lambda obj: obj.spec.template, lambda obj: obj.spec.selector
            ),
        ],
    ),
)
