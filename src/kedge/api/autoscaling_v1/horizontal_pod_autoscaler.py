"""HorizontalPodAutoscaler in autoscaling/v1: stored as autoscaling/v2, of all metrics only cpu."""

from collections.abc import Callable, Iterator

from msgspec import field
from msgspec.structs import replace

from kedge.api.autoscaling_v1.conversion import from_v2, to_v2
from kedge.api.autoscaling_v2 import horizontal_pod_autoscaler as stored
from kedge.api.model import Int32, Model, Object, Time
from kedge.api.presentation import Column, Presentation
from kedge.api.resource import STATUS, Resource, StoredAs
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError


class CrossVersionObjectReference(Model):
    """An object of any kind in the same namespace."""

    __required__ = ("kind", "name")
    __atomic__ = True

    kind: str = ""
    """Its kind."""
    name: str = ""
    """Its name."""
    apiVersion: str = ""
    """Its API version."""


class HorizontalPodAutoscalerSpec(Model):
    """The scale target and the metrics."""

    __required__ = ("scaleTargetRef", "maxReplicas")

    scaleTargetRef: CrossVersionObjectReference = field(default_factory=CrossVersionObjectReference)
    """The object to scale."""
    minReplicas: Int32 | None = None
    """The fewest replicas. Default 1."""
    maxReplicas: Int32 = field(default_factory=int)
    """The most replicas."""
    targetCPUUtilizationPercentage: Int32 | None = None
    """The use of cpu that is aimed at, in percent of what pods request."""


class HorizontalPodAutoscalerStatus(Model):
    """The observed state of the autoscaler."""

    __required__ = ("currentReplicas", "desiredReplicas")

    observedGeneration: int | None = None
    """The generation that this status is about."""
    lastScaleTime: Time = ""
    """When the number of replicas was last changed."""
    currentReplicas: Int32 = field(default_factory=int)
    """How many replicas there are."""
    desiredReplicas: Int32 = field(default_factory=int)
    """How many replicas there should be."""
    currentCPUUtilizationPercentage: Int32 | None = None
    """The use of cpu that was measured, in percent of what pods request."""


class HorizontalPodAutoscaler(Object):
    """Gives an object as many replicas as the use of cpu asks for, within bounds."""

    __required__ = ("spec",)

    spec: HorizontalPodAutoscalerSpec = field(default_factory=HorizontalPodAutoscalerSpec)
    """The scale target and the metrics."""
    status: HorizontalPodAutoscalerStatus = field(default_factory=HorizontalPodAutoscalerStatus)
    """The observed state of the autoscaler."""


def default(obj: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Return the autoscaler as it is read back: the conversions have a default metric, and
    annotations in place of the fields that only the other version has."""
    if obj.spec.minReplicas is None:
        obj = replace(obj, spec=replace(obj.spec, minReplicas=1))
    return RESOURCE.from_document(from_v2(to_v2(RESOURCE.to_document(obj))))


def as_stored(obj: HorizontalPodAutoscaler) -> stored.HorizontalPodAutoscaler:
    """The same autoscaler in the version whose rules count."""
    return stored.RESOURCE.from_document(to_v2(RESOURCE.to_document(obj)))


def validate(obj: HorizontalPodAutoscaler) -> Iterator[FieldError]:
    yield from stored.validate(as_stored(obj))


def validate_status(
    new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler
) -> Iterator[FieldError]:
    yield from stored.validate_status(as_stored(new), as_stored(old))


def _seen_as_stored(column: Column) -> Column:
    cell: Callable[[stored.HorizontalPodAutoscaler], object] = column.cell
    return replace(column, cell=lambda obj: cell(as_stored(obj)))


RESOURCE: Resource[HorizontalPodAutoscaler] = Resource(
    type=HorizontalPodAutoscaler,
    group="autoscaling",
    version="v1",
    plural="horizontalpodautoscalers",
    subresources=[STATUS],
    store_as=StoredAs(stored.RESOURCE, to_v2, from_v2),
    strategy=Strategy(
        counts_generation=False,
        default=default,
        validate=validate,
        validate_status=validate_status,
    ),
    presentation=Presentation(
        short_names=["hpa"],
        categories=["all"],
        columns=[_seen_as_stored(column) for column in stored.COLUMNS],
    ),
)
