"""HorizontalPodAutoscaler: as many replicas as metrics ask for, within bounds."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.autoscaling_v2.metrics import (
    CrossVersionObjectReference,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    ResourceMetricSource,
    targets_cell,
    validate_metric,
    validate_reference,
)
from kedge.api.model import Int32, Model, Object, Time, keyed, null
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity

DEFAULT_CPU_UTILIZATION = 80
LONGEST_PERIOD = 1800
LONGEST_WINDOW = 3600


class HPAScalingPolicy(Model):
    """How much may change in a period."""

    __required__ = ("type", "value", "periodSeconds")

    type: str = ""
    """The unit of the value: Pods or Percent."""
    value: Int32 = field(default_factory=int)
    """How many pods, or how many percent of them."""
    periodSeconds: Int32 = field(default_factory=int)
    """The period."""


class HPAScalingRules(Model):
    """How fast replicas change in one direction."""

    stabilizationWindowSeconds: Int32 | None = None
    """How far back recommendations count; the mildest of them is followed."""
    selectPolicy: str | None = None
    """Which policy decides: Max, Min, or Disabled for no change in this direction."""
    policies: Sequence[HPAScalingPolicy] = ()
    """The largest allowed change."""
    tolerance: Quantity | None = None
    """How far a metric may be off its target before anything changes."""


class HorizontalPodAutoscalerBehavior(Model):
    """How fast replicas change."""

    scaleUp: HPAScalingRules | None = None
    """How fast they become more."""
    scaleDown: HPAScalingRules | None = None
    """How fast they become fewer."""


class HorizontalPodAutoscalerSpec(Model):
    """The scale target and the metrics."""

    __required__ = ("scaleTargetRef", "maxReplicas")

    scaleTargetRef: CrossVersionObjectReference = field(default_factory=CrossVersionObjectReference)
    """The object to scale."""
    minReplicas: Int32 | None = None
    """The fewest replicas. Default 1."""
    maxReplicas: Int32 = field(default_factory=int)
    """The most replicas."""
    metrics: Sequence[MetricSpec] = ()
    """The metrics. Default cpu utilization with a target of 80 percent."""
    behavior: HorizontalPodAutoscalerBehavior | None = None
    """How fast replicas change."""


class HorizontalPodAutoscalerCondition(Model):
    """One aspect of an autoscaler's state."""

    __required__ = ("type", "status")

    type: str = ""
    """ScalingActive, AbleToScale or ScalingLimited."""
    status: str = ""
    """True, False or Unknown."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""


class HorizontalPodAutoscalerStatus(Model):
    """The observed state of the autoscaler."""

    __required__ = ("desiredReplicas",)

    observedGeneration: int | None = None
    """The generation that this status is about."""
    lastScaleTime: Time = ""
    """When the number of replicas was last changed."""
    currentReplicas: Int32 = 0
    """How many replicas there are."""
    desiredReplicas: Int32 = field(default_factory=int)
    """How many replicas there should be."""
    currentMetrics: Sequence[MetricStatus] | None = field(default_factory=null)
    """The current values of the metrics."""
    conditions: Annotated[Sequence[HorizontalPodAutoscalerCondition], keyed("type")] = ()
    """Aspects of its state."""


class HorizontalPodAutoscaler(Object):
    """Gives an object as many replicas as metrics ask for, within bounds."""

    __required__ = ("spec",)

    spec: HorizontalPodAutoscalerSpec = field(default_factory=HorizontalPodAutoscalerSpec)
    """The scale target and the metrics."""
    status: HorizontalPodAutoscalerStatus = field(default_factory=HorizontalPodAutoscalerStatus)
    """The observed state of the autoscaler."""


_UP = HPAScalingRules(
    stabilizationWindowSeconds=0,
    selectPolicy="Max",
    policies=[
        HPAScalingPolicy(type="Pods", value=4, periodSeconds=15),
        HPAScalingPolicy(type="Percent", value=100, periodSeconds=15),
    ],
)
_DOWN = HPAScalingRules(
    selectPolicy="Max", policies=[HPAScalingPolicy(type="Percent", value=100, periodSeconds=15)]
)


def cpu_metric(percent: int) -> MetricSpec:
    target = MetricTarget(type="Utilization", averageUtilization=percent)
    return MetricSpec(type="Resource", resource=ResourceMetricSource(name="cpu", target=target))


def default(obj: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    spec = obj.spec
    behavior = spec.behavior
    if behavior is not None:
        behavior = HorizontalPodAutoscalerBehavior(
            scaleUp=_default_rules(behavior.scaleUp, _UP),
            scaleDown=_default_rules(behavior.scaleDown, _DOWN),
        )
    spec = replace(
        spec,
        minReplicas=1 if spec.minReplicas is None else spec.minReplicas,
        metrics=spec.metrics or [cpu_metric(DEFAULT_CPU_UTILIZATION)],
        behavior=behavior,
    )
    return replace(obj, spec=spec)


def _default_rules(rules_: HPAScalingRules | None, otherwise: HPAScalingRules) -> HPAScalingRules:
    if rules_ is None:
        return otherwise
    window, policy = rules_.stabilizationWindowSeconds, rules_.selectPolicy
    return HPAScalingRules(
        stabilizationWindowSeconds=otherwise.stabilizationWindowSeconds
        if window is None
        else window,
        selectPolicy=otherwise.selectPolicy if policy is None else policy,
        policies=rules_.policies or otherwise.policies,
        tolerance=rules_.tolerance,
    )


def validate(obj: HorizontalPodAutoscaler) -> Iterator[FieldError]:
    spec = obj.spec
    least, most = spec.minReplicas, spec.maxReplicas
    if least is not None and least < 1:
        why = "must be greater than or equal to 1"
        yield FieldError.invalid("spec.minReplicas", least, why)
    if most == 0:
        yield FieldError.required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        why = "must be greater than or equal to 1"
        yield FieldError.invalid("spec.maxReplicas", most, why)
    if least is not None and most < least:
        why = "must be greater than or equal to `minReplicas`"
        yield FieldError.invalid("spec.maxReplicas", most, why)
    yield from validate_reference(spec.scaleTargetRef, "spec.scaleTargetRef", group=True)
    for i, metric in enumerate(spec.metrics):
        yield from validate_metric(metric, f"spec.metrics[{i}]")
    outside = any(metric.type in ("Object", "External") for metric in spec.metrics)
    if least == 0 and not outside:
        why = (
            "must specify at least one Object or External metric "
            "to support scaling to zero replicas"
        )
        yield FieldError.forbidden("spec.metrics", why)
    if spec.behavior is not None:
        yield from _rules(spec.behavior.scaleUp, "spec.behavior.scaleUp")
        yield from _rules(spec.behavior.scaleDown, "spec.behavior.scaleDown")


def _rules(found: HPAScalingRules | None, path: str) -> Iterator[FieldError]:
    if found is None:
        return
    window, at = found.stabilizationWindowSeconds, f"{path}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        yield FieldError.invalid(at, window, "must be greater than or equal to zero")
    if window is not None and window > LONGEST_WINDOW:
        yield FieldError.invalid(at, window, f"must be less than or equal to {LONGEST_WINDOW}")
    policies = ("Disabled", "Max", "Min")
    yield from rules.none_or_one_of(f"{path}.selectPolicy", found.selectPolicy, policies)
    if not found.policies:
        yield FieldError.required(f"{path}.policies", "must specify at least one Policy")
    for i, policy in enumerate(found.policies):
        yield from _policy(policy, f"{path}.policies[{i}]")
    if found.tolerance is not None and found.tolerance.nanos < 0:
        yield FieldError.invalid(f"{path}.tolerance", found.tolerance, rules.NEGATIVE)


def _policy(policy: HPAScalingPolicy, path: str) -> Iterator[FieldError]:
    if policy.type not in ("Pods", "Percent"):
        yield FieldError.not_supported(f"{path}.type", policy.type, ("Percent", "Pods"))
    if policy.value <= 0:
        yield FieldError.invalid(f"{path}.value", policy.value, "must be greater than zero")
    period, at = policy.periodSeconds, f"{path}.periodSeconds"
    if period <= 0:
        yield FieldError.invalid(at, period, "must be greater than zero")
    if period > LONGEST_PERIOD:
        yield FieldError.invalid(at, period, f"must be less than or equal to {LONGEST_PERIOD}")


def validate_status(
    new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler
) -> Iterator[FieldError]:
    yield from rules.nonnegative("status.currentReplicas", new.status.currentReplicas)
    yield from rules.nonnegative("status.desiredReplicas", new.status.desiredReplicas)


COLUMNS = (
    name_column(),
    Column(
        name="Reference",
        description="What is scaled.",
        cell=lambda obj: f"{obj.spec.scaleTargetRef.kind}/{obj.spec.scaleTargetRef.name}",
    ),
    Column(
        name="Targets",
        description="Present values of the metrics, and those aimed at.",
        cell=lambda obj: targets_cell(
            list(obj.spec.metrics), list(obj.status.currentMetrics or ())
        ),
    ),
    Column(
        name="MinPods",
        description="The fewest replicas.",
        cell=lambda obj: "<unset>" if obj.spec.minReplicas is None else str(obj.spec.minReplicas),
    ),
    Column(name="MaxPods", description="The most replicas.", cell=lambda obj: obj.spec.maxReplicas),
    Column(
        name="Replicas",
        description="How many replicas there are.",
        cell=lambda obj: obj.status.currentReplicas,
    ),
    age_column(),
)

RESOURCE: Resource[HorizontalPodAutoscaler] = Resource(
    type=HorizontalPodAutoscaler,
    group="autoscaling",
    version="v2",
    plural="horizontalpodautoscalers",
    subresources=[STATUS],
    strategy=Strategy(
        counts_generation=False,
        default=default,
        validate=validate,
        validate_status=validate_status,
    ),
    presentation=Presentation(short_names=["hpa"], categories=["all"], columns=COLUMNS),
)
