"""Trace: the usage of pods over time, as `kedge top -o json --watch` or Prometheus recorded it."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec

from kedge.machinery.quantity import Quantity

MOST_BYTES: Final = 512 << 20
MOST_PODS: Final = 20_000
MOST_MOMENTS: Final = 20_000
MOST_SAMPLES: Final = 50_000_000
"""Moments of all pods together: a thousand pods over five days, every ten seconds."""
_GREATEST: Final = 1e18
"""The greatest amount and time; sums of greater ones are not finite."""
_NANOS: Final = 1e9
_REPLICA: Final = re.compile(r"(-[a-z0-9]{5,10})?-[a-z0-9]{5}$|-\d+$")
"""The end of the name of a pod that a controller made."""


class TraceError(ValueError):
    """The file is not a trace."""


class TracedAmount(NamedTuple):
    """The usage of a pod at one moment."""

    cores: float = 0.0
    memory: float = 0.0


class TracedPod(NamedTuple):
    """One pod of the recording."""

    key: str
    """Namespace and name."""
    requests: Mapping[str, str]
    amounts: Mapping[int, TracedAmount]
    """By the number of the moment."""
    first: int
    """The moment at which it comes."""
    last: int
    """The moment after which it goes."""

    @property
    def workload(self) -> str:
        """The name without the part that tells replicas apart."""
        return _REPLICA.sub("", self.key)


class Trace(NamedTuple):
    """A recording."""

    moments: tuple[float, ...]
    """Seconds since the epoch, rising."""
    pods: tuple[TracedPod, ...]
    """In the order of their first moments."""


class _TraceRecording:
    """Collects samples in any order."""

    def __init__(self) -> None:
        self.samples: dict[str, dict[float, dict[str, float]]] = {}
        self.requests: dict[str, dict[str, Quantity]] = {}

    def add(self, key: str, time: float, resource: str, value: float) -> None:
        if not (isfinite(time) and isfinite(value)):
            # Prometheus answers NaN where it has no value.
            return
        if max(abs(time), value) > _GREATEST:
            raise TraceError(f"a time or an amount is greater than {_GREATEST:g}")
        if key not in self.samples and len(self.samples) >= MOST_PODS:
            raise TraceError(f"the trace has more than {MOST_PODS} pods")
        at = self.samples.setdefault(key, {}).setdefault(time, {})
        at[resource] = at.get(resource, 0.0) + max(value, 0.0)

    def request(self, key: str, resource: str, amount: Quantity) -> None:
        own = self.requests.setdefault(key, {})
        own[resource] = own[resource] + amount if resource in own else amount

    def trace(self) -> Trace:
        moments = sorted({time for each in self.samples.values() for time in each})
        if not moments:
            raise TraceError("the trace has no usage of any pod")
        if len(moments) > MOST_MOMENTS:
            raise TraceError(f"the trace has more than {MOST_MOMENTS} moments")
        numbers = {time: number for number, time in enumerate(moments)}
        pods = [self._pod(key, found, numbers) for key, found in self.samples.items()]
        if sum(pod.last - pod.first + 1 for pod in pods) > MOST_SAMPLES:
            raise TraceError(f"the trace has more than {MOST_SAMPLES} moments of pods")
        return Trace(tuple(moments), tuple(sorted(pods, key=lambda pod: (pod.first, pod.key))))

    def _pod(
        self, key: str, found: Mapping[float, Mapping[str, float]], numbers: Mapping[float, int]
    ) -> TracedPod:
        known = TracedAmount()
        amounts = {}
        for time in sorted(found):
            at = found[time]
            known = TracedAmount(at.get("cpu", known.cores), at.get("memory", known.memory))
            amounts[numbers[time]] = known
        requests = {name: str(each) for name, each in self.requests.get(key, {}).items()}
        return TracedPod(key, requests, amounts, min(amounts), max(amounts))


def read(data: bytes) -> Trace:
    """Read a trace; raises TraceError."""
    if len(data) > MOST_BYTES:
        raise TraceError(f"the trace is larger than {MOST_BYTES >> 20} MiB")
    recording = _TraceRecording()
    try:
        for document in _documents(data):
            _take(recording, document)
    except (
        msgspec.DecodeError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"the trace cannot be read: {error or type(error).__name__}") from error
    return recording.trace()


def _documents(data: bytes) -> Iterable[Any]:
    """One document, or one in each line."""
    try:
        return [msgspec.json.decode(data)]
    except msgspec.DecodeError:
        lines = [line for line in data.splitlines() if line.strip()]
        try:
            return [msgspec.json.decode(line) for line in lines]
        except msgspec.DecodeError:
            # The last line of a recording that was interrupted may be incomplete.
            return [msgspec.json.decode(line) for line in lines[:-1]]


def _take(recording: _TraceRecording, document: Any) -> None:
    match document:
        case {"time": str(time), "items": list(items)}:
            moment = datetime.fromisoformat(time).timestamp()
            for each in items:
                _take_line(recording, moment, each)
        case {"data": {"result": list(series)}} | {"result": list(series)}:
            for each in series:
                _take_series(recording, each, "")
        case {**parts} if parts and all(isinstance(each, dict) for each in parts.values()):
            for resource, answer in document.items():
                for each in answer["data"]["result"]:
                    _take_series(recording, each, resource)
        case _:
            raise TraceError(
                "the trace is neither the output of 'kedge top pods -A -o json --watch' nor an"
                " answer of Prometheus to query_range"
            )


def _take_line(recording: _TraceRecording, moment: float, item: Mapping[str, Any]) -> None:
    key = f"{item['namespace']}/{item['name']}"
    for resource in ("cpu", "memory"):
        if resource in item.get("usage", {}):
            amount = Quantity.parse(item["usage"][resource])
            recording.add(key, moment, resource, amount.nanos / _NANOS)
    recording.requests[key] = {
        name: Quantity.parse(amount)
        for name, amount in item.get("requests", {}).items()
        if name in ("cpu", "memory")
    }


def _take_series(recording: _TraceRecording, series: Mapping[str, Any], resource: str) -> None:
    """One series of a matrix. Its resource is the name of its part, or in its own name."""
    labels = series["metric"]
    if "pod" not in labels:
        return
    key = f"{labels.get('namespace', 'default')}/{labels['pod']}"
    name = labels.get("__name__", "")
    if resource == "requests" or "resource_requests" in name:
        _take_request(recording, key, labels.get("resource", ""), series["values"])
        return
    resource = resource or ("memory" if "memory" in name else "cpu")
    if resource not in ("cpu", "memory"):
        raise TraceError(f'part "{resource}" is none of cpu, memory and requests')
    for time, value in series["values"]:
        recording.add(key, float(time), resource, float(value))


def _take_request(recording: _TraceRecording, key: str, resource: str, values: Any) -> None:
    if resource in ("cpu", "memory") and values:
        nanos = round(float(values[-1][1]) * _NANOS)
        recording.request(key, resource, Quantity(nanos))
