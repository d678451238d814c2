"""Deployment: a number of identical pods, replaced step by step when the template changes."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.apps_v1 import rolling, workload
from kedge.api.core_v1.pod.defaults import default_template
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.model import (
    RETAIN_KEYS,
    Int32,
    IntOrString,
    LabelSelector,
    Model,
    Object,
    Time,
    keyed,
)
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import SCALE, STATUS, Resource, ScalePaths
from kedge.api.strategy import Strategy, with_change_of_spec
from kedge.machinery.errors import FieldError


class RollingUpdateDeployment(Model):
    """How fast old pods give way to new ones."""

    maxUnavailable: IntOrString | None = None
    """How many of the wanted pods may be missing meanwhile, as a number or a percentage."""
    maxSurge: IntOrString | None = None
    """How many pods beyond the wanted ones there may be meanwhile."""


class DeploymentStrategy(Model):
    """How pods are replaced."""

    type: str = ""
    """RollingUpdate or Recreate. Default RollingUpdate."""
    rollingUpdate: RollingUpdateDeployment | None = None
    """The pace of a RollingUpdate."""


class DeploymentSpec(Model):
    """The pods that are wanted."""

    __required__ = ("selector", "template")

    replicas: Int32 | None = None
    """How many pods are wanted. Default 1."""
    selector: LabelSelector | None = None
    """Labels by which the pods are known; cannot be changed."""
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    """The template of the pods."""
    strategy: Annotated[DeploymentStrategy, RETAIN_KEYS] = field(default_factory=DeploymentStrategy)
    """How pods of an older template are replaced."""
    minReadySeconds: Int32 = 0
    """How long a pod must be ready to count as available."""
    revisionHistoryLimit: Int32 | None = None
    """How many old ReplicaSets are kept to go back to. Default 10."""
    paused: bool = False
    """Whether changes of the template wait."""
    progressDeadlineSeconds: Int32 | None = None
    """How long no progress may be made before the deployment counts as failed. Default 600."""


class DeploymentCondition(Model):
    """One aspect of a deployment's state."""

    __required__ = ("type", "status")

    type: str = ""
    """Available, Progressing or ReplicaFailure."""
    status: str = ""
    """True, False or Unknown."""
    lastUpdateTime: Time = ""
    """When the condition was last looked at."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""


class DeploymentStatus(Model):
    """The pods there are."""

    observedGeneration: int = 0
    """The generation that this status is about."""
    replicas: Int32 = 0
    """How many pods there are, of all templates."""
    updatedReplicas: Int32 = 0
    """How many have the present template."""
    readyReplicas: Int32 = 0
    """How many are ready."""
    availableReplicas: Int32 = 0
    """How many have been ready long enough."""
    unavailableReplicas: Int32 = 0
    """How many are still missing."""
    terminatingReplicas: Int32 | None = None
    """How many are about to end."""
    conditions: Annotated[Sequence[DeploymentCondition], keyed("type")] = ()
    """Aspects of its state."""
    collisionCount: Int32 | None = None
    """How often a name for a ReplicaSet was taken already."""


class Deployment(Object):
    """Keeps a number of like pods running and replaces them step by step when they change."""

    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    """The pods that are wanted."""
    status: DeploymentStatus = field(default_factory=DeploymentStatus)
    """The pods there are."""


def default(obj: Deployment) -> Deployment:
    spec = obj.spec
    spec = replace(
        spec,
        replicas=1 if spec.replicas is None else spec.replicas,
        template=default_template(spec.template),
        strategy=_default_strategy(spec.strategy),
        revisionHistoryLimit=_or(spec.revisionHistoryLimit, 10),
        progressDeadlineSeconds=_or(spec.progressDeadlineSeconds, 600),
    )
    return replace(obj, spec=spec)


def _default_strategy(strategy: DeploymentStrategy) -> DeploymentStrategy:
    type_ = strategy.type or "RollingUpdate"
    if type_ != "RollingUpdate":
        return strategy
    pace = strategy.rollingUpdate or RollingUpdateDeployment()
    pace = RollingUpdateDeployment(
        maxUnavailable="25%" if pace.maxUnavailable is None else pace.maxUnavailable,
        maxSurge="25%" if pace.maxSurge is None else pace.maxSurge,
    )
    return DeploymentStrategy(type=type_, rollingUpdate=pace)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def validate(obj: Deployment) -> Iterator[FieldError]:
    spec = obj.spec
    yield from rules.nonnegative("spec.replicas", spec.replicas)
    yield from workload.validate_selector(spec.selector, "deployment")
    if workload.is_readable(spec.selector):
        yield from workload.validate_pods(spec.selector, spec.template, "ReplicaSet")
    else:
        yield FieldError.invalid("spec.selector", spec.selector, "invalid label selector")
    yield from _strategy(spec.strategy, "spec.strategy")
    yield from rules.nonnegative("spec.minReadySeconds", spec.minReadySeconds)
    yield from rules.nonnegative("spec.revisionHistoryLimit", spec.revisionHistoryLimit)
    deadline = spec.progressDeadlineSeconds
    yield from rules.nonnegative("spec.progressDeadlineSeconds", deadline)
    if deadline is not None and deadline <= spec.minReadySeconds:
        why = "must be greater than minReadySeconds"
        yield FieldError.invalid("spec.progressDeadlineSeconds", deadline, why)


def _strategy(strategy: DeploymentStrategy, path: str) -> Iterator[FieldError]:
    pace, at = strategy.rollingUpdate, f"{path}.rollingUpdate"
    if strategy.type == "Recreate":
        if pace is not None:
            why = "may not be specified when strategy `type` is 'Recreate'"
            yield FieldError.forbidden(at, why)
    elif strategy.type != "RollingUpdate":
        yield FieldError.not_supported(path, strategy, ("Recreate", "RollingUpdate"))
    elif pace is None:
        yield FieldError.required(at, "this should be defaulted and never be nil")
    else:
        yield from rolling.validate_amount(pace.maxUnavailable, f"{at}.maxUnavailable")
        yield from rolling.validate_amount(pace.maxSurge, f"{at}.maxSurge")
        if rolling.is_zero(pace.maxUnavailable) and rolling.is_zero(pace.maxSurge):
            why = "may not be 0 when `maxSurge` is 0"
            yield FieldError.invalid(f"{at}.maxUnavailable", pace.maxUnavailable, why)
        yield from rolling.validate_share(pace.maxUnavailable, f"{at}.maxUnavailable")


def validate_update(new: Deployment, old: Deployment) -> Iterator[FieldError]:
    yield from workload.unchanged("spec.selector", new.spec.selector, old.spec.selector)


_PARTS = ("updatedReplicas", "readyReplicas", "availableReplicas")
_COUNTS = (
    "observedGeneration",
    "replicas",
    *_PARTS,
    "unavailableReplicas",
    "terminatingReplicas",
    "collisionCount",
)


def validate_status(new: Deployment, old: Deployment) -> Iterator[FieldError]:
    status = new.status
    yield from workload.validate_counts(status, _COUNTS)
    yield from workload.validate_parts(status, _PARTS)
    if status.availableReplicas > status.readyReplicas:
        why = "cannot be greater than readyReplicas"
        yield FieldError.invalid("status.availableReplicas", status.availableReplicas, why)
    yield from workload.validate_collisions(status.collisionCount, old.status.collisionCount)


def prepare_for_status_update(new: Deployment, old: Deployment) -> Deployment:
    """Keep the labels of the old object: upstream takes none from a write to the status."""
    return replace(new, metadata=replace(new.metadata, labels=old.metadata.labels))


def desired_state(document: dict[str, Any]) -> object:
    """Return the spec and the annotations: the controller copies these to ReplicaSets."""
    return document.get("spec"), document["metadata"].get("annotations")


RESOURCE: Resource[Deployment] = Resource(
    type=Deployment,
    group="apps",
    plural="deployments",
    subresources=[SCALE, STATUS],
    scale=ScalePaths(),
    strategy=Strategy(
        desired_state=desired_state,
        default=default,
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
        prepare_for_status_update=prepare_for_status_update,
        warnings=workload.warn,
        warns_on_update=with_change_of_spec,
    ),
    presentation=Presentation(
        short_names=["deploy"],
        categories=["all"],
        columns=[
            name_column(),
            Column(
                name="Ready",
                description="How many pods are ready, of those wanted.",
                cell=lambda obj: f"{obj.status.readyReplicas}/{obj.spec.replicas or 0}",
            ),
            Column(
                name="Up-to-date",
                description="How many pods have the present template.",
                cell=lambda obj: obj.status.updatedReplicas,
            ),
            Column(
                name="Available",
                description="How many pods have been ready long enough.",
                cell=lambda obj: obj.status.availableReplicas,
            ),
            age_column(),
            *workload.template_columns(
                lambda obj: obj.spec.template, lambda obj: obj.spec.selector
            ),
        ],
    ),
)
