"""StatusReport: collects the status and conditions of an autoscaler."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
)
from kedge.api.autoscaling_v2.metrics import MetricStatus
from kedge.controllers.autoscaling.pace import ConditionReason


class FailedMeasurement(msgspec.Struct, frozen=True):
    """The replicas and metrics of an autoscaler, if some metric could not be measured."""

    replicas: int
    statuses: Sequence[MetricStatus]
    """Those that could not be measured are empty."""


class StatusReport(msgspec.Struct):
    """Collects the status and conditions of an autoscaler."""

    hpa: HorizontalPodAutoscaler
    at: str
    conditions: list[HorizontalPodAutoscalerCondition] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self.conditions = list(self.hpa.status.conditions)

    def say(self, type_: str, holds: bool, verdict: ConditionReason) -> None:
        status = "True" if holds else "False"
        for i, known in enumerate(self.conditions):
            if known.type == type_:
                since = known.lastTransitionTime if known.status == status else self.at
                self.conditions[i] = _condition(type_, status, verdict, since)
                return
        self.conditions.append(_condition(type_, status, verdict, self.at))

    def told(
        self,
        current: int,
        desired: int,
        metrics: Sequence[MetricStatus],
        *,
        rescaled: bool = False,
    ) -> HorizontalPodAutoscaler:
        status = replace(
            self.hpa.status,
            currentReplicas=current,
            desiredReplicas=desired,
            currentMetrics=metrics or None,
            conditions=self.conditions,
            lastScaleTime=self.at if rescaled else self.hpa.status.lastScaleTime,
        )
        return replace(self.hpa, status=status)

    def failed(self, measured: FailedMeasurement | None) -> HorizontalPodAutoscaler:
        """Nothing but the conditions is new, and what was measured before the failure."""
        status = replace(self.hpa.status, conditions=self.conditions)
        if measured is not None:
            metrics = measured.statuses or None
            status = replace(status, currentReplicas=measured.replicas, currentMetrics=metrics)
        return replace(self.hpa, status=status)


def _condition(
    type_: str, status: str, verdict: ConditionReason, since: str
) -> HorizontalPodAutoscalerCondition:
    return HorizontalPodAutoscalerCondition(
        type=type_,
        status=status,
        reason=verdict.reason,
        message=verdict.message,
        lastTransitionTime=since,
    )
