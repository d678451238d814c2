"""MetricReader: measures one metric of an autoscaler and computes the replicas for it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import assert_never

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import HorizontalPodAutoscaler
from kedge.api.autoscaling_v2.metrics import (
    ContainerResourceMetricSource,
    ExternalMetricSource,
    MetricSpec,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.controllers.autoscaling.metric import (
    ResourceSource,
    selector_of,
    source_of,
    target_of,
    tolerance_of,
    wanted_by,
)
from kedge.controllers.autoscaling.outside_metrics import OutsideMetrics
from kedge.controllers.autoscaling.proposal import (
    AverageUse,
    MetricSample,
    Proposal,
    UnknownUsage,
    per_pod,
    propose,
    to_value,
)
from kedge.controllers.autoscaling.scale_target import ScaleTarget
from kedge.controllers.autoscaling.usage import samples
from kedge.machinery.clock import Clock


class MetricReader:
    """Measures metrics of all types."""

    def __init__(self, client: Client, discovery: Discovery, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._outside = OutsideMetrics(client, discovery)

    async def proposal(
        self,
        hpa: HorizontalPodAutoscaler,
        spec: MetricSpec,
        scale: ScaleTarget,
        selected: Sequence[Pod],
    ) -> Proposal:
        """Return the replicas that a metric asks for; UnknownUsage if it cannot be measured."""
        match source := source_of(spec):
            case PodsMetricSource():
                return await self._of_pods(hpa, source, scale, selected)
            case ObjectMetricSource():
                return await self._of_object(hpa, source, scale, selected)
            case ExternalMetricSource():
                return await self._external(hpa, source, scale, selected)
            case ResourceMetricSource() | ContainerResourceMetricSource():
                return await self._of_resource(hpa, source, scale, selected)
        assert_never(source)

    async def _of_resource(
        self,
        hpa: HorizontalPodAutoscaler,
        source: ResourceSource,
        scale: ScaleTarget,
        selected: Sequence[Pod],
    ) -> Proposal:
        wanted = wanted_by(source)
        doing = f"failed to get {wanted.resource} " + (
            "usage" if source.target.averageValue is not None else "utilization"
        )
        try:
            found = await samples(self._client, hpa.metadata.namespace, scale.selector, wanted)
            return propose(
                scale.replicas,
                target_of(source.target, selected, wanted),
                selected,
                found,
                resource=wanted.resource,
                tolerance=tolerance_of(hpa),
                now=self._clock.now(),
            )
        except UnknownUsage as error:
            raise UnknownUsage(f"{doing}: {error}") from error

    async def _of_pods(
        self,
        hpa: HorizontalPodAutoscaler,
        source: PodsMetricSource,
        scale: ScaleTarget,
        selected: Sequence[Pod],
    ) -> Proposal:
        metric, average = source.metric, source.target.averageValue
        assert average is not None  # validated
        try:
            values = await self._outside.of_pods(hpa.metadata.namespace, scale.selector, metric)
        except UnknownUsage as error:
            raise UnknownUsage(f"unable to get metric {metric.name}: {error}") from error
        now = self._clock.now()
        return propose(
            scale.replicas,
            AverageUse(average.milli()),
            selected,
            {name: MetricSample(value, now, timedelta()) for name, value in values.items()},
            resource="",
            tolerance=tolerance_of(hpa),
            now=now,
        )

    async def _of_object(
        self,
        hpa: HorizontalPodAutoscaler,
        source: ObjectMetricSource,
        scale: ScaleTarget,
        selected: Sequence[Pod],
    ) -> Proposal:
        target, described, metric = source.target, source.describedObject, source.metric
        namespace = hpa.metadata.namespace
        goal = {"Value": target.value, "AverageValue": target.averageValue}.get(target.type)
        if goal is None:
            raise UnknownUsage(
                "invalid object metric source: neither a value target nor an average value "
                "target was set"
            )
        try:
            value = await self._outside.of_object(namespace, described, metric)
        except UnknownUsage as error:
            # Kubernetes formats the arguments in this order.
            raise UnknownUsage(
                f"unable to get metric {metric.name}: {described.kind} on {namespace} "
                f"{described.name}/{error}"
            ) from error
        if target.type == "Value" and target.value is not None:
            return to_value(
                value, target.value.milli(), scale.replicas, selected, tolerance_of(hpa)
            )
        assert target.averageValue is not None  # validated
        average = target.averageValue.milli()
        return per_pod(value, average, scale.observed_replicas, tolerance_of(hpa))

    async def _external(
        self,
        hpa: HorizontalPodAutoscaler,
        source: ExternalMetricSource,
        scale: ScaleTarget,
        selected: Sequence[Pod],
    ) -> Proposal:
        target, metric, namespace = source.target, source.metric, hpa.metadata.namespace
        try:
            value = await self._outside.external(namespace, metric)
        except UnknownUsage as error:
            raise UnknownUsage(
                f"unable to get external metric {namespace}/{metric.name}/"
                f"{selector_of(metric)}: {error}"
            ) from error
        if target.averageValue is not None:
            average = target.averageValue.milli()
            return per_pod(value, average, scale.observed_replicas, tolerance_of(hpa))
        assert target.value is not None  # validated
        return to_value(value, target.value.milli(), scale.replicas, selected, tolerance_of(hpa))
