"""The metrics of a HorizontalPodAutoscaler: sources, targets and current values."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import field

from kedge.api import rules
from kedge.api.core_v1.resource_names import container_name
from kedge.api.model import EXTENSION, Int32, LabelSelector, Model
from kedge.machinery import names
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity
from kedge.metrics.windows import STATISTICS, WINDOWS

SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
"""The field that holds a metric of each type."""
_ORDER = ("object", "external", "pods", "resource", "containerResource")


class CrossVersionObjectReference(Model):
    """An object of any kind in the same namespace."""

    __required__ = ("kind", "name")

    kind: str = ""
    """Its kind."""
    name: str = ""
    """Its name."""
    apiVersion: str = ""
    """Its API version."""


class MetricIdentifier(Model):
    """The metric."""

    __required__ = ("name",)

    name: str = ""
    """Its name."""
    selector: LabelSelector | None = None
    """Labels that narrow it down."""


class MetricTarget(Model):
    """The target value."""

    __required__ = ("type",)

    type: str = ""
    """The form of the target: Utilization, Value or AverageValue."""
    value: Quantity | None = None
    """The value."""
    averageValue: Quantity | None = None
    """The value per pod."""
    averageUtilization: Int32 | None = None
    """The value per pod, in percent of what the pod requests."""


class MetricValueStatus(Model):
    """The measured value."""

    value: Quantity | None = None
    """The value."""
    averageValue: Quantity | None = None
    """The value per pod."""
    averageUtilization: Int32 | None = None
    """The value per pod, in percent of what the pod requests."""


class ObjectMetricSource(Model):
    """A metric of one object."""

    __required__ = ("describedObject", "target", "metric")

    describedObject: CrossVersionObjectReference = field(
        default_factory=CrossVersionObjectReference
    )
    """The object."""
    target: MetricTarget = field(default_factory=MetricTarget)
    """The target value."""
    metric: MetricIdentifier = field(default_factory=MetricIdentifier)
    """The metric."""


class PodsMetricSource(Model):
    """A metric that each pod has."""

    __required__ = ("metric", "target")

    metric: MetricIdentifier = field(default_factory=MetricIdentifier)
    """The metric."""
    target: MetricTarget = field(default_factory=MetricTarget)
    """The target average."""


class ResourceMetricSource(Model):
    """The usage of a resource by the pods."""

    __required__ = ("name", "target")

    name: str = field(default_factory=str)
    """The resource: cpu or memory."""
    target: MetricTarget = field(default_factory=MetricTarget)
    """The target usage."""
    window: Annotated[str, EXTENSION] = ""
    """The window of time: 10s, 1m, 1h or 1d. Default that of metrics.k8s.io."""
    statistic: Annotated[str, EXTENSION] = ""
    """The statistic of the window: mean, max or 95th. Default mean."""


class ContainerResourceMetricSource(Model):
    """The usage of a resource by one container of each pod."""

    __required__ = ("name", "target", "container")

    name: str = field(default_factory=str)
    """The resource: cpu or memory."""
    target: MetricTarget = field(default_factory=MetricTarget)
    """The target usage."""
    container: str = field(default_factory=str)
    """The container."""
    window: Annotated[str, EXTENSION] = ""
    """The window of time: 10s, 1m, 1h or 1d. Default that of metrics.k8s.io."""
    statistic: Annotated[str, EXTENSION] = ""
    """The statistic of the window: mean, max or 95th. Default mean."""


class ExternalMetricSource(Model):
    """A metric from outside the cluster."""

    __required__ = ("metric", "target")

    metric: MetricIdentifier = field(default_factory=MetricIdentifier)
    """The metric."""
    target: MetricTarget = field(default_factory=MetricTarget)
    """The target value."""


class MetricSpec(Model):
    """One metric to follow; exactly one source is set."""

    __required__ = ("type",)

    type: str = ""
    """ContainerResource, External, Object, Pods or Resource."""
    object: ObjectMetricSource | None = None
    """A metric of one object."""
    pods: PodsMetricSource | None = None
    """A metric that each pod has."""
    resource: ResourceMetricSource | None = None
    """The usage of a resource by the pods."""
    containerResource: ContainerResourceMetricSource | None = None
    """The usage of a resource by one container of each pod."""
    external: ExternalMetricSource | None = None
    """A metric from outside the cluster."""


class ObjectMetricStatus(Model):
    """The current value of a metric of one object."""

    __required__ = ("metric", "current", "describedObject")

    metric: MetricIdentifier = field(default_factory=MetricIdentifier)
    """The metric."""
    current: MetricValueStatus = field(default_factory=MetricValueStatus)
    """The measured value."""
    describedObject: CrossVersionObjectReference = field(
        default_factory=CrossVersionObjectReference
    )
    """The object."""


class PodsMetricStatus(Model):
    """The current value of a metric that each pod has."""

    __required__ = ("metric", "current")

    metric: MetricIdentifier = field(default_factory=MetricIdentifier)
    """The metric."""
    current: MetricValueStatus = field(default_factory=MetricValueStatus)
    """The measured value."""


class ResourceMetricStatus(Model):
    """The current usage of a resource by the pods."""

    __required__ = ("name", "current")

    name: str = field(default_factory=str)
    """The resource."""
    current: MetricValueStatus = field(default_factory=MetricValueStatus)
    """The measured usage."""


class ContainerResourceMetricStatus(Model):
    """The current usage of a resource by one container of each pod."""

    __required__ = ("name", "current", "container")

    name: str = field(default_factory=str)
    """The resource."""
    current: MetricValueStatus = field(default_factory=MetricValueStatus)
    """The measured usage."""
    container: str = field(default_factory=str)
    """The container."""


class ExternalMetricStatus(Model):
    """The current value of a metric from outside the cluster."""

    __required__ = ("metric", "current")

    metric: MetricIdentifier = field(default_factory=MetricIdentifier)
    """The metric."""
    current: MetricValueStatus = field(default_factory=MetricValueStatus)
    """The measured value."""


class MetricStatus(Model):
    """The current value of one metric."""

    __required__ = ("type",)

    type: str = ""
    """ContainerResource, External, Object, Pods or Resource."""
    object: ObjectMetricStatus | None = None
    """The current value of a metric of one object."""
    pods: PodsMetricStatus | None = None
    """The current value of a metric that each pod has."""
    resource: ResourceMetricStatus | None = None
    """The current usage of a resource by the pods."""
    containerResource: ContainerResourceMetricStatus | None = None
    """The current usage of a resource by one container of each pod."""
    external: ExternalMetricStatus | None = None
    """The current value of a metric from outside the cluster."""


def validate_metric(metric: MetricSpec, path: str) -> Iterator[FieldError]:
    """Everything wrong with one metric and its target."""
    if not metric.type:
        yield FieldError.required(f"{path}.type", "must specify a metric source type")
    if metric.type not in SOURCES:
        yield FieldError.not_supported(f"{path}.type", metric.type, SOURCES)
    present = [word for word in _ORDER if getattr(metric, word) is not None]
    if present:
        yield from _source(metric, present[0], f"{path}.{present[0]}")
    expected = SOURCES.get(metric.type)
    if expected is not None and expected not in present:
        why = "must populate information for the given metric source"
        yield FieldError.required(f"{path}.{expected}", why)
    if len(present) > 1:
        for word in present:
            if word != expected:
                why = "must populate the given metric source only"
                yield FieldError.forbidden(f"{path}.{word}", why)


def _source(metric: MetricSpec, word: str, path: str) -> Iterator[FieldError]:
    match getattr(metric, word):
        case ObjectMetricSource() as source:
            yield from validate_reference(
                source.describedObject, f"{path}.describedObject", group=False
            )
            yield from _identifier(source.metric, f"{path}.metric")
            yield from _target(source.target, f"{path}.target")
            if source.target.value is None and source.target.averageValue is None:
                why = "must set either a target value or averageValue"
                yield FieldError.required(f"{path}.target.averageValue", why)
        case ExternalMetricSource() as source:
            yield from _identifier(source.metric, f"{path}.metric")
            yield from _target(source.target, f"{path}.target")
            yield from _external_target(source.target, f"{path}.target")
        case PodsMetricSource() as source:
            yield from _identifier(source.metric, f"{path}.metric")
            yield from _target(source.target, f"{path}.target")
            if source.target.averageValue is None:
                why = "must specify a positive target averageValue"
                yield FieldError.required(f"{path}.target.averageValue", why)
        case ResourceMetricSource() as source:
            if not source.name:
                yield FieldError.required(f"{path}.name", "must specify a resource name")
            yield from _resource_target(source.target, f"{path}.target")
            yield from _windowed(source, path)
        case ContainerResourceMetricSource() as source:
            yield from _container_resource(source, path)
            yield from _resource_target(source.target, f"{path}.target")
            yield from _windowed(source, path)


def _container_resource(source: ContainerResourceMetricSource, path: str) -> Iterator[FieldError]:
    if not source.name:
        yield FieldError.required(f"{path}.name", "must specify a resource name")
    else:
        yield from rules.problems(f"{path}.name", source.name, container_name(source.name))
    if not source.container:
        yield FieldError.required(f"{path}.container", "must specify a container")
    else:
        found = names.dns_label(source.container)
        yield from rules.problems(f"{path}.container", source.container, found)


def _windowed(
    source: ResourceMetricSource | ContainerResourceMetricSource, path: str
) -> Iterator[FieldError]:
    if source.window:
        yield from rules.one_of(f"{path}.window", source.window, tuple(WINDOWS))
    if source.statistic:
        yield from rules.one_of(f"{path}.statistic", source.statistic, STATISTICS)


def _external_target(target: MetricTarget, path: str) -> Iterator[FieldError]:
    if target.value is None and target.averageValue is None:
        why = "must set either a target value for metric or a per-pod target"
        yield FieldError.required(f"{path}.averageValue", why)
    if target.value is not None and target.averageValue is not None:
        why = "may not set both a target value for metric and a per-pod target"
        yield FieldError.forbidden(f"{path}.value", why)


def _resource_target(target: MetricTarget, path: str) -> Iterator[FieldError]:
    yield from _target(target, path)
    if target.averageUtilization is None and target.averageValue is None:
        why = "must set either a target raw value or a target utilization"
        yield FieldError.required(f"{path}.averageUtilization", why)
    if target.averageUtilization is not None and target.averageValue is not None:
        why = "may not set both a target raw value and a target utilization"
        yield FieldError.forbidden(f"{path}.averageValue", why)


def _target(target: MetricTarget, path: str) -> Iterator[FieldError]:
    if not target.type:
        yield FieldError.required(f"{path}.type", "must specify a metric target type")
    if target.type not in ("Utilization", "Value", "AverageValue"):
        why = "must be either Utilization, Value, or AverageValue"
        yield FieldError.invalid(f"{path}.type", target.type, why)
    for word in ("value", "averageValue"):
        amount: Quantity | None = getattr(target, word)
        if amount is not None and amount.nanos <= 0:
            yield FieldError.invalid(f"{path}.{word}", amount, "must be positive")
    if target.averageUtilization is not None and target.averageUtilization < 1:
        why = "must be greater than 0"
        yield FieldError.invalid(f"{path}.averageUtilization", target.averageUtilization, why)


def _identifier(metric: MetricIdentifier, path: str) -> Iterator[FieldError]:
    if not metric.name:
        yield FieldError.required(f"{path}.name", "must specify a metric name")
    else:
        yield from rules.problems(f"{path}.name", metric.name, names.path_segment(metric.name))


def validate_reference(
    ref: CrossVersionObjectReference, path: str, *, group: bool
) -> Iterator[FieldError]:
    """Everything wrong with a reference; `group`: whether its apiVersion must name one."""
    for word in ("kind", "name"):
        value: str = getattr(ref, word)
        if not value:
            yield FieldError.required(f"{path}.{word}")
        else:
            yield from rules.problems(f"{path}.{word}", value, names.path_segment(value))
    at = f"{path}.apiVersion"
    if ref.apiVersion.count("/") > 1:
        why = f"unexpected GroupVersion string: {ref.apiVersion}"
        yield FieldError.invalid(at, ref.apiVersion, why)
    elif group and not ref.apiVersion.rpartition("/")[0]:
        yield FieldError.invalid(at, ref.apiVersion, "apiVersion must specify API group")


def targets_cell(specs: list[MetricSpec], statuses: list[MetricStatus]) -> str:
    """`cpu: 30%/80%, 10/20 + 1 more...`: current values and targets."""
    if not specs:
        return "<none>"
    shown = [
        _cell(spec, statuses[i] if i < len(statuses) else None) for i, spec in enumerate(specs[:2])
    ]
    more = len(specs) - len(shown)
    return ", ".join(shown) + (f" + {more} more..." if more else "")


def _cell(spec: MetricSpec, status: MetricStatus | None) -> str:
    word = SOURCES.get(spec.type, "")
    source = getattr(spec, word, None)
    if source is None:
        return "<unknown type>"
    measured = getattr(status, word, None)
    current: MetricValueStatus = measured.current if measured else MetricValueStatus()
    target: MetricTarget = source.target
    if word in ("resource", "containerResource"):
        return f"{source.name}: {_resource_cell(target, current)}"
    if word != "pods" and target.averageValue is None:
        return f"{_known(current.value)}/{_known(target.value)}"
    average = "" if word == "pods" else " (avg)"
    return f"{_known(current.averageValue)}/{_known(target.averageValue)}{average}"


def _resource_cell(target: MetricTarget, current: MetricValueStatus) -> str:
    if target.averageValue is not None:
        return f"{_known(current.averageValue)}/{target.averageValue}"
    percent = current.averageUtilization
    present = "<unknown>" if percent is None else f"{percent}%"
    wanted = target.averageUtilization
    return f"{present}/{'<auto>' if wanted is None else f'{wanted}%'}"


def _known(amount: Quantity | None) -> str:
    return "<unknown>" if amount is None else str(amount)
