"""Usage of pods, read from the metrics API."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, NamedTuple

from kedge.api.metrics_v1alpha1 import pod as windowed
from kedge.api.metrics_v1alpha1.windows import Metrics, Windows, added
from kedge.api.metrics_v1beta1 import usage as plain
from kedge.api.metrics_v1beta1.usage import PodMetrics
from kedge.api.model import ResourceList
from kedge.client.client import Client
from kedge.controllers.autoscaling.proposal import MetricSample, UnknownUsage
from kedge.machinery.durations import parse_duration, parse_time
from kedge.machinery.errors import StatusError
from kedge.metrics.windows import MAIN, WINDOWS

NOTHING: Final = "no metrics returned from resource metrics API"


class MetricQuery(NamedTuple):
    """The resource, container, window and statistic to read."""

    resource: str
    container: str = ""
    """Empty for whole pods."""
    window: str = ""
    statistic: str = ""
    """Without window and statistic, what metrics.k8s.io says."""


async def samples(
    client: Client, namespace: str, selector: str, wanted: MetricQuery
) -> dict[str, MetricSample]:
    """Return the usage of each selected pod; pods without metrics are left out."""
    try:
        if wanted.window or wanted.statistic:
            found = await client.list(windowed.RESOURCE, namespace, labels=selector)
            pairs = [(pod.metadata.name, from_windows(pod, wanted)) for pod in found.items]
        else:
            listed = await client.list(plain.PODS, namespace, labels=selector)
            metrics = [each for each in listed.items if isinstance(each, PodMetrics)]
            pairs = [(pod.metadata.name, from_usage(pod, wanted)) for pod in metrics]
    except StatusError as error:
        message = f"unable to fetch metrics from resource metrics API: {error}"
        raise UnknownUsage(_unable(wanted, message)) from error
    if not pairs:
        raise UnknownUsage(_unable(wanted, NOTHING))
    return {name: sample for name, sample in pairs if sample is not None}


def _unable(wanted: MetricQuery, why: str) -> str:
    return f"unable to get metrics for resource {wanted.resource}: {why}"


def from_usage(pod: PodMetrics, wanted: MetricQuery) -> MetricSample | None:
    parts = [each.usage for each in pod.containers if wanted.container in ("", each.name)]
    value = _value(parts, wanted.resource)
    if value is None:
        return None
    window = timedelta(microseconds=parse_duration(pod.window) // 1000)
    return MetricSample(value, parse_time(pod.timestamp), window)


def from_windows(pod: windowed.Pod, wanted: MetricQuery) -> MetricSample | None:
    length = wanted.window or MAIN
    metrics = _windows(pod, wanted.container).get(length)
    if metrics is None:
        return None
    value = _value([_statistic(metrics, wanted.statistic)], wanted.resource)
    if value is None:
        return None
    return MetricSample(value, parse_time(metrics.endtime), timedelta(seconds=WINDOWS[length]))


def _windows(pod: windowed.Pod, container: str) -> Windows:
    if not container:
        return windowed.windows_of(pod)
    return next((each.metrics for each in pod.containers if each.metadata.name == container), {})


def _statistic(metrics: Metrics, name: str) -> ResourceList:
    if name == "max":
        return metrics.max
    return metrics.ninety_fifth if name == "95th" else metrics.mean


def _value(parts: Iterable[ResourceList], resource: str) -> int | None:
    """The sum in thousandths, if every part is known."""
    known = list(parts)
    if not known or any(resource not in part for part in known):
        return None
    return added(known)[resource].milli()
