"""HorizontalPodAutoscalers in autoscaling/v1: what v1 has no field for becomes an annotation."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kedge.api.autoscaling_v2.horizontal_pod_autoscaler import (
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerCondition,
)
from kedge.api.autoscaling_v2.metrics import MetricSpec, MetricStatus
from kedge.api.resource import dec_hook

Part = dict[str, Any]

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
_ANNOTATIONS = (
    METRICS,
    BEHAVIOR,
    CURRENT_METRICS,
    CONDITIONS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
)
DEFAULT_CPU_UTILIZATION = 80
_SHARED_SPEC = ("scaleTargetRef", "minReplicas", "maxReplicas")
_SHARED_STATUS = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")


def to_v2(document: Part) -> Part:
    """A v1 document as the v2 document that is stored."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    notes = (document.get("metadata") or {}).get("annotations") or {}
    metrics = _read_list(notes, METRICS, _metric_to_v2, list[MetricSpec])
    if "targetCPUUtilizationPercentage" in spec:
        metrics = [*(metrics or ()), _cpu(spec["targetCPUUtilizationPercentage"])]
    new_spec = _picked(spec, _SHARED_SPEC)
    new_spec["metrics"] = metrics or [_cpu(DEFAULT_CPU_UTILIZATION)]
    behavior = _behavior_to_v2(_read(notes, BEHAVIOR))
    if behavior and _fits(behavior, HorizontalPodAutoscalerBehavior):
        new_spec["behavior"] = behavior
    new_status = _picked(status, _SHARED_STATUS)
    measured = _read_list(notes, CURRENT_METRICS, _status_to_v2, list[MetricStatus])
    if measured is None and "currentCPUUtilizationPercentage" in status:
        measured = [_cpu_status(status["currentCPUUtilizationPercentage"])]
    if measured:
        new_status["currentMetrics"] = measured
    conditions = _read_list(
        notes, CONDITIONS, _without_nulls, list[HorizontalPodAutoscalerCondition]
    )
    if conditions:
        new_status["conditions"] = conditions
    return _renewed(document, "autoscaling/v2", {}, new_spec, new_status)


def from_v2(document: Part) -> Part:
    """The v1 view of a stored v2 document."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    notes: dict[str, str] = {}
    new_spec = _picked(spec, _SHARED_SPEC)
    metrics = spec.get("metrics") or []
    percents = [percent for metric in metrics if (percent := _cpu_percent(metric)) is not None]
    if percents:
        new_spec["targetCPUUtilizationPercentage"] = percents[0]
    others = [metric for metric in metrics if _cpu_percent(metric) is None]
    if others:
        notes[METRICS] = _json([_metric_to_v1(metric) for metric in others])
    new_status = _picked(status, _SHARED_STATUS)
    measured = status.get("currentMetrics") or []
    for metric in measured:
        resource = metric.get("resource") or {}
        if metric.get("type") == "Resource" and resource.get("name") == "cpu":
            percent = resource.get("current", {}).get("averageUtilization")
            if percent is not None:
                new_status["currentCPUUtilizationPercentage"] = percent
    # Kept even where it is nothing but cpu, since it has the raw value as well.
    if measured:
        notes[CURRENT_METRICS] = _json([_status_to_v1(metric) for metric in measured])
    if spec.get("behavior") is not None:
        notes[BEHAVIOR] = _json(_behavior_to_v1(spec["behavior"]))
    if status.get("conditions"):
        conditions = [{"lastTransitionTime": None, **each} for each in status["conditions"]]
        notes[CONDITIONS] = _json(conditions)
    return _renewed(document, "autoscaling/v1", notes, new_spec, new_status)


def _renewed(
    document: Part, api_version: str, notes: dict[str, str], spec: Part, status: Part
) -> Part:
    """The document in another version, with other notes in place of those from a conversion."""
    meta = dict(document.get("metadata") or {})
    kept = {k: v for k, v in (meta.pop("annotations", None) or {}).items() if k not in _ANNOTATIONS}
    if kept or notes:
        meta["annotations"] = kept | notes
    changed = {"apiVersion": api_version, "metadata": meta, "spec": spec}
    rest = {key: value for key, value in document.items() if key != "status"}
    return rest | changed | ({"status": status} if status or "status" in document else {})


def _picked(part: Mapping[str, Any], names: tuple[str, ...]) -> Part:
    return {name: part[name] for name in names if name in part}


def _read_list(
    notes: Mapping[str, str], key: str, convert: Callable[[Part], Part], wanted: Any
) -> list[Part] | None:
    """Return the list in an annotation; None if it is absent or unreadable."""
    found = _read(notes, key)
    try:
        made = [convert(each) for each in found] if isinstance(found, list) else None
    except (KeyError, TypeError, AttributeError):
        return None
    return made if _fits(made, wanted) else None


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value of an annotation, which anybody may write, has its type."""
    try:
        msgspec.convert(value, wanted, dec_hook=dec_hook)
    except (msgspec.ValidationError, ValueError):
        return False
    return True


def _read(notes: Mapping[str, str], key: str) -> Any:
    try:
        return json.loads(notes.get(key, "null"))
    except ValueError:
        return None


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _cpu(percent: int) -> Part:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _cpu_status(percent: int) -> Part:
    current = {"averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "current": current}}


def _cpu_percent(metric: Part) -> int | None:
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    percent: int | None = resource.get("target", {}).get("averageUtilization")
    return percent


def _without_nulls(part: Part) -> Part:
    return {name: value for name, value in part.items() if value is not None}


def _filled(**fields: Any) -> Part:
    return _without_nulls(fields)


_FIELDS = ("object", "pods", "resource", "containerResource", "external")


def _converted(metric: Part, table: Mapping[str, Callable[[Part], Part]]) -> Part:
    parts = {word: table[word](metric[word]) for word in _FIELDS if metric.get(word) is not None}
    return {"type": metric.get("type", ""), **parts}


def _metric_to_v1(metric: Part) -> Part:
    return _converted(metric, _SOURCES_TO_V1)


def _metric_to_v2(metric: Part) -> Part:
    return _converted(metric, _SOURCES_TO_V2)


def _status_to_v1(metric: Part) -> Part:
    return _converted(metric, _STATUSES_TO_V1)


def _status_to_v2(metric: Part) -> Part:
    return _converted(metric, _STATUSES_TO_V2)


def _metric(source: Part) -> Part:
    found: Part = source.get("metric", {})
    return found


def _identifier(name: str, selector: Part | None) -> Part:
    return _filled(name=name, selector=selector)


def _target(type_: str, **fields: Any) -> Part:
    return _filled(type=type_, **fields)


def _object_to_v1(source: Part) -> Part:
    target = source.get("target", {})
    return _filled(
        target=source.get("describedObject", {}),
        metricName=_metric(source).get("name", ""),
        targetValue=target.get("value", "0"),
        selector=_metric(source).get("selector"),
        averageValue=target.get("averageValue"),
    )


def _object_to_v2(source: Part) -> Part:
    average, value = source.get("averageValue"), source.get("targetValue", "0")
    # v1 cannot leave the value out and writes a zero instead.
    if average is not None and str(value) == "0":
        value = None
    type_ = "Value" if average is None else "AverageValue"
    return {
        "describedObject": source.get("target", {}),
        "target": _target(type_, value=value, averageValue=average),
        "metric": _identifier(source.get("metricName", ""), source.get("selector")),
    }


def _pods_to_v1(source: Part) -> Part:
    return _filled(
        metricName=_metric(source).get("name", ""),
        targetAverageValue=source.get("target", {}).get("averageValue", "0"),
        selector=_metric(source).get("selector"),
    )


def _pods_to_v2(source: Part) -> Part:
    return {
        "metric": _identifier(source.get("metricName", ""), source.get("selector")),
        "target": _target("AverageValue", averageValue=source.get("targetAverageValue", "0")),
    }


def _resource_to_v1(source: Part) -> Part:
    target = source.get("target", {})
    return _filled(
        name=source.get("name", ""),
        targetAverageUtilization=target.get("averageUtilization"),
        targetAverageValue=target.get("averageValue"),
        container=source.get("container"),
    )


def _resource_to_v2(source: Part) -> Part:
    percent = source.get("targetAverageUtilization")
    target = _target(
        "AverageValue" if percent is None else "Utilization",
        averageValue=source.get("targetAverageValue"),
        averageUtilization=percent,
    )
    return _filled(name=source.get("name", ""), target=target, container=source.get("container"))


def _external_to_v1(source: Part) -> Part:
    target = source.get("target", {})
    return _filled(
        metricName=_metric(source).get("name", ""),
        metricSelector=_metric(source).get("selector"),
        targetValue=target.get("value"),
        targetAverageValue=target.get("averageValue"),
    )


def _external_to_v2(source: Part) -> Part:
    value, average = source.get("targetValue"), source.get("targetAverageValue")
    type_ = "AverageValue" if value is None else "Value"
    return {
        "metric": _identifier(source.get("metricName", ""), source.get("metricSelector")),
        "target": _target(type_, value=value, averageValue=average),
    }


def _object_status_to_v1(status: Part) -> Part:
    current = status.get("current", {})
    return _filled(
        target=status.get("describedObject", {}),
        metricName=_metric(status).get("name", ""),
        currentValue=current.get("value", "0"),
        selector=_metric(status).get("selector"),
        averageValue=current.get("averageValue"),
    )


def _object_status_to_v2(status: Part) -> Part:
    return {
        "metric": _identifier(status.get("metricName", ""), status.get("selector")),
        "current": _filled(
            value=status.get("currentValue", "0"), averageValue=status.get("averageValue")
        ),
        "describedObject": status.get("target", {}),
    }


def _pods_status_to_v1(status: Part) -> Part:
    return _filled(
        metricName=_metric(status).get("name", ""),
        currentAverageValue=status.get("current", {}).get("averageValue", "0"),
        selector=_metric(status).get("selector"),
    )


def _pods_status_to_v2(status: Part) -> Part:
    return {
        "metric": _identifier(status.get("metricName", ""), status.get("selector")),
        "current": {"averageValue": status.get("currentAverageValue", "0")},
    }


def _resource_status_to_v1(status: Part) -> Part:
    current = status.get("current", {})
    return _filled(
        name=status.get("name", ""),
        currentAverageUtilization=current.get("averageUtilization"),
        currentAverageValue=current.get("averageValue", "0"),
        container=status.get("container"),
    )


def _resource_status_to_v2(status: Part) -> Part:
    current = _filled(
        averageValue=status.get("currentAverageValue", "0"),
        averageUtilization=status.get("currentAverageUtilization"),
    )
    return _filled(name=status.get("name", ""), current=current, container=status.get("container"))


def _external_status_to_v1(status: Part) -> Part:
    current = status.get("current", {})
    return _filled(
        metricName=_metric(status).get("name", ""),
        metricSelector=_metric(status).get("selector"),
        currentValue=current.get("value", "0"),
        currentAverageValue=current.get("averageValue"),
    )


def _external_status_to_v2(status: Part) -> Part:
    return {
        "metric": _identifier(status.get("metricName", ""), status.get("metricSelector")),
        "current": _filled(
            value=status.get("currentValue", "0"),
            averageValue=status.get("currentAverageValue"),
        ),
    }


_SOURCES_TO_V1 = {
    "object": _object_to_v1,
    "pods": _pods_to_v1,
    "resource": _resource_to_v1,
    "containerResource": _resource_to_v1,
    "external": _external_to_v1,
}
_SOURCES_TO_V2 = {
    "object": _object_to_v2,
    "pods": _pods_to_v2,
    "resource": _resource_to_v2,
    "containerResource": _resource_to_v2,
    "external": _external_to_v2,
}
_STATUSES_TO_V1 = {
    "object": _object_status_to_v1,
    "pods": _pods_status_to_v1,
    "resource": _resource_status_to_v1,
    "containerResource": _resource_status_to_v1,
    "external": _external_status_to_v1,
}
_STATUSES_TO_V2 = {
    "object": _object_status_to_v2,
    "pods": _pods_status_to_v2,
    "resource": _resource_status_to_v2,
    "containerResource": _resource_status_to_v2,
    "external": _external_status_to_v2,
}


def _behavior_to_v1(behavior: Part) -> Part:
    """Upstream writes its internal type here, whose fields have no names but Go's."""
    return {
        "ScaleUp": _rules_to_v1(behavior.get("scaleUp")),
        "ScaleDown": _rules_to_v1(behavior.get("scaleDown")),
    }


def _rules_to_v1(rules: Part | None) -> Part | None:
    if rules is None:
        return None
    policies = [
        {
            "Type": each.get("type", ""),
            "Value": each.get("value", 0),
            "PeriodSeconds": each.get("periodSeconds", 0),
        }
        for each in rules.get("policies") or ()
    ]
    return {
        "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
        "SelectPolicy": rules.get("selectPolicy"),
        "Policies": policies or None,
        "Tolerance": rules.get("tolerance"),
    }


_RULE_NAMES = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_POLICY_NAMES = ("type", "value", "periodSeconds")


def _behavior_to_v2(behavior: Any) -> Part:
    directions = _respelt(behavior, ("scaleUp", "scaleDown"))
    for direction, rules in directions.items():
        if not isinstance(rules, dict):
            return {}
        found = _respelt(rules, _RULE_NAMES)
        if isinstance(found.get("policies"), list):
            found["policies"] = [_respelt(each, _POLICY_NAMES) for each in found["policies"]]
        directions[direction] = found
    return directions


def _respelt(part: Any, names: tuple[str, ...]) -> Part:
    """The fields in the spelling of v2; as for Go, upper and lower case are the same."""
    spellings = {name.lower(): name for name in names}
    return {
        spellings[name.lower()]: value
        for name, value in (part.items() if isinstance(part, dict) else ())
        if name.lower() in spellings and value is not None
    }
