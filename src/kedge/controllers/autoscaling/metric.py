"""Metric: the source, name, target and status of one metric of an autoscaler."""

from collections.abc import Sequence
from typing import assert_never

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import HorizontalPodAutoscaler
from kedge.api.autoscaling_v2.metrics import (
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    ExternalMetricSource,
    ExternalMetricStatus,
    MetricIdentifier,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
    ObjectMetricSource,
    ObjectMetricStatus,
    PodsMetricSource,
    PodsMetricStatus,
    ResourceMetricSource,
    ResourceMetricStatus,
)
from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.autoscaling.proposal import (
    AverageUse,
    Proposal,
    Tolerance,
    UnknownUsage,
    UsageTarget,
    Utilization,
    requests_of,
)
from kedge.controllers.autoscaling.usage import MetricQuery
from kedge.machinery.quantity import Format, Quantity

ResourceSource = ResourceMetricSource | ContainerResourceMetricSource
MetricSource = ResourceSource | PodsMetricSource | ObjectMetricSource | ExternalMetricSource


def source_of(spec: MetricSpec) -> MetricSource:
    """Return the source of a metric; UnknownUsage for a type of a later version."""
    sources: dict[str, MetricSource | None] = {
        "Resource": spec.resource,
        "ContainerResource": spec.containerResource,
        "Pods": spec.pods,
        "Object": spec.object,
        "External": spec.external,
    }
    source = sources.get(spec.type)
    if source is None:
        raise UnknownUsage(f'unknown metric source type "{spec.type}"')
    return source


def wanted_by(source: ResourceSource) -> MetricQuery:
    container = source.container if isinstance(source, ContainerResourceMetricSource) else ""
    return MetricQuery(source.name, container, source.window, source.statistic)


def target_of(target: MetricTarget, selected: Sequence[Pod], wanted: MetricQuery) -> UsageTarget:
    if target.averageValue is not None:
        return AverageUse(target.averageValue.milli())
    if target.averageUtilization is None:
        raise UnknownUsage(
            "invalid resource metric source: neither an average utilization target nor "
            "an average value (usage) target was set"
        )
    requests = requests_of(selected, wanted.resource, wanted.container)
    return Utilization(target.averageUtilization, requests)


def tolerance_of(hpa: HorizontalPodAutoscaler) -> Tolerance:
    behavior, usual = hpa.spec.behavior, Tolerance()
    below = behavior.scaleDown.tolerance if behavior and behavior.scaleDown else None
    above = behavior.scaleUp.tolerance if behavior and behavior.scaleUp else None
    return Tolerance(
        usual.below if below is None else below.nanos / 1e9,
        usual.above if above is None else above.nanos / 1e9,
    )


def name_of(spec: MetricSpec) -> str:
    """A metric as events and conditions call it."""
    match source := source_of(spec):
        case PodsMetricSource():
            return f"pods metric {source.metric.name}"
        case ObjectMetricSource() if source.target.type == "Value":
            return f"{source.describedObject.kind} metric {source.metric.name}"
        case ObjectMetricSource() | ExternalMetricSource():
            return f"external metric {source.metric.name}({selector_of(source.metric)})"
    if source.target.averageValue is not None:
        return f"{source.name} resource"
    kind = "container resource" if spec.type == "ContainerResource" else "resource"
    return f"{source.name} {kind} utilization (percentage of request)"


def selector_of(metric: MetricIdentifier) -> str:
    """The selector of a metric, as Kubernetes prints it in names and errors."""
    selector = metric.selector
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.matchLabels.items()))
    conditions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},"
        f"Values:[{' '.join(each.values)}],}},"
        for each in selector.matchExpressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{conditions}}},}}"
    )


def refusal_of(spec: MetricSpec, why: str) -> str:
    """The error of a metric, as part of that of the autoscaler."""
    match source := source_of(spec):
        case ContainerResourceMetricSource():
            return f"failed to get {source.container} container metric value: {why}"
        case ResourceMetricSource():
            return f"failed to get {source.name} resource metric value: {why}"
        case ExternalMetricSource():
            name = source.metric.name
            is_average = source.target.averageValue is not None
            metric = f"{name} external metric" if is_average else f"external metric {name}"
            return f"failed to get {name} external metric value: failed to get {metric}: {why}"
        case ObjectMetricSource() if source.target.type == "AverageValue":
            why = f"failed to get {source.metric.name} object metric: {why}"
    return f"failed to get {spec.type.lower()} metric value: {why}"


def status_of(spec: MetricSpec, proposal: Proposal) -> MetricStatus:
    """The current value of a metric."""
    source = source_of(spec)
    is_memory = isinstance(source, ResourceSource) and source.name == "memory"
    format_ = Format.BINARY_SI if is_memory else Format.DECIMAL_SI
    current = MetricValueStatus(
        value=_quantity(proposal.value, format_),
        averageValue=_quantity(proposal.average, format_),
        averageUtilization=proposal.utilization,
    )
    match source:
        case ContainerResourceMetricSource():
            container = ContainerResourceMetricStatus(
                name=source.name, container=source.container, current=current
            )
            return MetricStatus(type=spec.type, containerResource=container)
        case ResourceMetricSource():
            resource = ResourceMetricStatus(name=source.name, current=current)
            return MetricStatus(type=spec.type, resource=resource)
        case PodsMetricSource():
            pods = PodsMetricStatus(metric=source.metric, current=current)
            return MetricStatus(type=spec.type, pods=pods)
        case ObjectMetricSource():
            described = source.describedObject
            object_ = ObjectMetricStatus(
                metric=source.metric, current=current, describedObject=described
            )
            return MetricStatus(type=spec.type, object=object_)
        case ExternalMetricSource():
            external = ExternalMetricStatus(metric=source.metric, current=current)
            return MetricStatus(type=spec.type, external=external)
    assert_never(source)


def _quantity(milli: int | None, format_: Format) -> Quantity | None:
    return None if milli is None else Quantity.from_milli(milli, format_)
