"""Metric: the source, name, target and status of one metric of an autoscaler."""

from collections.abc import Sequence

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import HorizontalPodAutoscaler
from kedge.api.autoscaling_v2.metrics import (
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
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


def source_of(spec: MetricSpec) -> ResourceSource:
    """Return the source of a resource metric; other types need APIs that kedge does not serve."""
    if spec.resource is not None:
        return spec.resource
    if spec.containerResource is not None:
        return spec.containerResource
    api = "external" if spec.type == "External" else "custom"
    raise UnknownUsage(f"unable to fetch metrics from {api} metrics API: no such API is served")


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
    source = source_of(spec)
    if source.target.averageValue is not None:
        return f"{source.name} resource"
    kind = "container resource" if spec.type == "ContainerResource" else "resource"
    return f"{source.name} {kind} utilization (percentage of request)"


def refusal_of(spec: MetricSpec, why: str) -> str:
    if spec.type == "ContainerResource" and spec.containerResource is not None:
        return f"failed to get {spec.containerResource.container} container metric value: {why}"
    if spec.type == "Resource" and spec.resource is not None:
        return f"failed to get {spec.resource.name} resource metric value: {why}"
    return f"failed to get {spec.type.lower()} metric value: {why}"


def status_of(spec: MetricSpec, proposal: Proposal) -> MetricStatus:
    source = source_of(spec)
    format_ = Format.BINARY_SI if source.name == "memory" else Format.DECIMAL_SI
    current = MetricValueStatus(
        averageValue=Quantity.from_milli(proposal.average, format_),
        averageUtilization=proposal.utilization,
    )
    if isinstance(source, ContainerResourceMetricSource):
        measured = ContainerResourceMetricStatus(
            name=source.name, container=source.container, current=current
        )
        return MetricStatus(type=spec.type, containerResource=measured)
    return MetricStatus(
        type=spec.type, resource=ResourceMetricStatus(name=source.name, current=current)
    )
