"""ReplicationController: keeps identical pods running; the predecessor of ReplicaSet."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1.pod.defaults import default_template
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.pod.validation import validate_template
from kedge.api.label_selector import shown_labels
from kedge.api.model import ATOMIC, Int32, Model, Object, Time, keyed
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import SCALE, STATUS, Resource, ScalePaths
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError

_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")


class ReplicationControllerSpec(Model):
    """How many pods, and what they look like."""

    minReadySeconds: Int32 = 0
    """How long a pod must be ready to count as available."""
    replicas: Int32 | None = None
    """How many pods are wanted. Default 1."""
    selector: Annotated[Mapping[str, str], ATOMIC] = {}
    """Labels by which the pods are known. Default the labels of the template."""
    template: PodTemplateSpec | None = None
    """The template of new pods."""


class ReplicationControllerCondition(Model):
    """One aspect of the controller's state."""

    __required__ = ("type", "status")

    lastTransitionTime: Time = ""
    """When the status last changed."""
    message: str = ""
    """Why, for people."""
    reason: str = ""
    """Why, as one word."""
    status: str = ""
    """True, False or Unknown."""
    type: str = ""
    """The type of the condition, for instance ReplicaFailure."""


class ReplicationControllerStatus(Model):
    """How many pods there are."""

    __required__ = ("replicas",)

    availableReplicas: Int32 = 0
    """How many have been ready long enough."""
    conditions: Annotated[Sequence[ReplicationControllerCondition], keyed("type")] = ()
    """Aspects of its state."""
    fullyLabeledReplicas: Int32 = 0
    """How many have all labels of the template."""
    observedGeneration: int = 0
    """The generation that this status is about."""
    readyReplicas: Int32 = 0
    """How many are ready."""
    replicas: Int32 = field(default_factory=int)
    """How many there are."""


class ReplicationController(Object):
    """Keeps a number of like pods running."""

    spec: ReplicationControllerSpec = field(default_factory=ReplicationControllerSpec)
    """The desired state."""
    status: ReplicationControllerStatus = field(default_factory=ReplicationControllerStatus)
    """The observed state."""


def default(obj: ReplicationController) -> ReplicationController:
    spec = obj.spec
    replicas = 1 if spec.replicas is None else spec.replicas
    if spec.template is None:
        return replace(obj, spec=replace(spec, replicas=replicas))
    labels = spec.template.metadata.labels
    spec = replace(
        spec,
        replicas=replicas,
        selector=spec.selector or labels,
        template=default_template(spec.template),
    )
    if not obj.metadata.labels and labels:
        obj = replace(obj, metadata=replace(obj.metadata, labels=labels))
    return replace(obj, spec=spec)


def validate(obj: ReplicationController) -> Iterator[FieldError]:
    spec = obj.spec
    yield from rules.nonnegative("spec.minReadySeconds", spec.minReadySeconds)
    if not spec.selector:
        yield FieldError.required("spec.selector")
    if spec.replicas is None:
        yield FieldError.required("spec.replicas")
    yield from rules.nonnegative("spec.replicas", spec.replicas)
    if spec.template is None:
        yield FieldError.required("spec.template")
    else:
        yield from _template(spec.template, spec.selector)


def _template(template: PodTemplateSpec, selector: Mapping[str, str]) -> Iterator[FieldError]:
    path = "spec.template"
    labels = template.metadata.labels
    if not selector.items() <= labels.items():
        why = "`selector` does not match template `labels`"
        yield FieldError.invalid(f"{path}.metadata.labels", labels or None, why)
    yield from validate_template(template, path)
    if template.spec.restartPolicy != "Always":
        at = f"{path}.spec.restartPolicy"
        yield FieldError.not_supported(at, template.spec.restartPolicy, ["Always"])
    if template.spec.activeDeadlineSeconds is not None:
        why = "activeDeadlineSeconds in ReplicationController is not Supported"
        yield FieldError.forbidden(f"{path}.spec.activeDeadlineSeconds", why)


def validate_status(new: ReplicationController, old: ReplicationController) -> Iterator[FieldError]:
    status = new.status
    for name in (*_COUNTS, "observedGeneration"):
        yield from rules.nonnegative(f"status.{name}", getattr(status, name))
    for name in _COUNTS[1:]:
        if (count := getattr(status, name)) > status.replicas:
            why = "cannot be greater than status.replicas"
            yield FieldError.invalid(f"status.{name}", count, why)
    if status.availableReplicas > status.readyReplicas:
        why = "cannot be greater than readyReplicas"
        yield FieldError.invalid("status.availableReplicas", status.availableReplicas, why)


def _containers(obj: ReplicationController, name: str) -> str:
    if obj.spec.template is None:
        return ""
    return ",".join(getattr(each, name) for each in obj.spec.template.spec.containers)


RESOURCE: Resource[ReplicationController] = Resource(
    type=ReplicationController,
    plural="replicationcontrollers",
    subresources=[SCALE, STATUS],
    scale=ScalePaths(),
    registry="controllers",
    strategy=Strategy(
        orphans_dependents=True,
        default=default,
        validate=validate,
        validate_status=validate_status,
    ),
    presentation=Presentation(
        short_names=["rc"],
        categories=["all"],
        fields={"status.replicas": lambda obj: str(obj.status.replicas)},
        columns=[
            name_column(),
            Column(
                name="Desired",
                type="integer",
                cell=lambda obj: obj.spec.replicas or 0,
                description="How many pods are wanted.",
            ),
            Column(
                name="Current",
                type="integer",
                cell=lambda obj: obj.status.replicas,
                description="How many there are.",
            ),
            Column(
                name="Ready",
                type="integer",
                cell=lambda obj: obj.status.readyReplicas,
                description="How many are ready.",
            ),
            age_column(),
            Column(
                name="Containers",
                cell=lambda obj: _containers(obj, "name"),
                priority=1,
                description="Names of the containers.",
            ),
            Column(
                name="Images",
                cell=lambda obj: _containers(obj, "image"),
                priority=1,
                description="Images of the containers.",
            ),
            Column(
                name="Selector",
                cell=lambda obj: shown_labels(obj.spec.selector),
                priority=1,
                description="Labels by which the pods are known.",
            ),
        ],
    ),
)
