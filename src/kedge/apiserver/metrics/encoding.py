"""Rows of numbers as JSON: what clients get of an object, written by templates."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil
from typing import Final

import msgspec

from kedge.api.metrics_v1alpha1.frame import (
    RESOURCES,
    STATISTICS,
    TICK,
    WINDOWS,
    Frame,
    Measured,
    index,
)

LENGTHS: Final = {"10s": 10, "1m": 60, "1h": 3600, "1d": 86400}
"""Seconds."""
_AMOUNTS: Final = '"mean":{"cpu":"%s","memory":"%s"},"max":{"cpu":"%s","memory":"%s"},' + (
    '"95th":{"cpu":"%s","memory":"%s"}'
)
_WHOLE: Final = "{" + ",".join(f'"{window}":{{%s,{_AMOUNTS}}}' for window in WINDOWS) + "}"
_PER_WINDOW: Final = len(STATISTICS) * len(RESOURCES)


def pod(
    metadata: str, frame: Frame, end_tick: int, measured: Sequence[Measured], total: tuple[int, int]
) -> bytes:
    """A Pod of metrics/v1alpha1; `metadata` is JSON, `total` its row and since when."""
    end = end_tick * TICK
    containers = _containers(frame, measured, end)
    text = f'{{"kind":"Pod","apiVersion":"metrics/v1alpha1","metadata":{metadata},{containers}'
    if len(measured) > 1:
        row, since = total
        text += f',"total":{windows(frame.row(row), end, since)}'
    return (text + "}").encode()


def node(metadata: str, frame: Frame) -> bytes:
    """A Node of metrics/v1alpha1."""
    end = frame.end_tick * TICK
    machine = windows(frame.row(0), end, frame.since)
    systems = _containers(frame, frame.systems, end).replace("containers", "systemContainers", 1)
    head = f'{{"kind":"Node","apiVersion":"metrics/v1alpha1","metadata":{metadata}'
    return f'{head},"machine":{machine},{systems}}}'.encode()


def pod_usage(
    metadata: str, frame: Frame, end_tick: int, measured: Sequence[Measured], window: str
) -> bytes:
    """A PodMetrics of metrics.k8s.io as an element of a list."""
    containers = ",".join(
        [
            f'{{"name":{_quoted(each.name)},"usage":{_usage(frame.row(each.row), window)}}}'
            for each in measured
        ]
    )
    moment = _moment(end_tick * TICK, window)
    return f'{{"metadata":{metadata},{moment},"containers":[{containers}]}}'.encode()


def node_usage(metadata: str, frame: Frame, window: str) -> bytes:
    """A NodeMetrics of metrics.k8s.io as an element of a list."""
    usage = _usage(frame.row(0), window)
    moment = _moment(frame.end_tick * TICK, window)
    return f'{{"metadata":{metadata},{moment},"usage":{usage}}}'.encode()


def metadata(
    name: str, namespace: str, uid: str, version: int, created: int, labels: Mapping[str, str]
) -> str:
    place = f'"namespace":"{namespace}",' if namespace else ""
    head = f'{{"name":"{name}",{place}"uid":"{uid}","resourceVersion":"{version}",'
    marks = f',"labels":{msgspec.json.encode(labels).decode()}' if labels else ""
    return f'{head}"creationTimestamp":"{moment(created)}"{marks}}}'


def _containers(frame: Frame, measured: Sequence[Measured], end: int) -> str:
    written = [
        f'{{"metadata":{{"name":{_quoted(each.name)}}},'
        f'"metrics":{windows(frame.row(each.row), end, each.since)}}}'
        for each in measured
    ]
    return f'"containers":[{",".join(written)}]'


def windows(row: Sequence[float], end: int, since: int) -> str:
    """All windows of one row, which end together; one begins when the measuring did, if later."""
    if min(row) < 0:
        return _incomplete(row, end, since)
    texts = [""] * len(row)
    texts[::2] = [
        f"{n}n" if n % 1000 else _nanos(n) for n in [int(v * 1e9 + 0.5) for v in row[::2]]
    ]
    texts[1::2] = [
        f"{k}Ki" if k & 1023 else _kibibytes(k) for k in [ceil(v / 1024) for v in row[1::2]]
    ]
    heads = _heads(end, since)
    return _WHOLE % (
        *(heads[0], *texts[:6]),
        *(heads[1], *texts[6:12]),
        *(heads[2], *texts[12:18]),
        *(heads[3], *texts[18:]),
    )


def _incomplete(row: Sequence[float], end: int, since: int) -> str:
    """Windows of which not everything is known; what is not known is left out."""
    written = []
    for number, (window, head) in enumerate(zip(WINDOWS, _heads(end, since), strict=True)):
        numbers = row[number * _PER_WINDOW :]
        maps = [
            f'"{statistic}":{_amounts(numbers[2 * at], numbers[2 * at + 1])}'
            for at, statistic in enumerate(STATISTICS)
        ]
        written.append(f'"{window}":{{{head},{",".join(maps)}}}')
    return "{" + ",".join(written) + "}"


def _amounts(cpu: float, memory: float) -> str:
    known = [f'"cpu":"{cpu_text(cpu)}"'] if cpu >= 0 else []
    if memory >= 0:
        known.append(f'"memory":"{memory_text(memory)}"')
    return "{" + ",".join(known) + "}"


def _usage(row: Sequence[float], window: str) -> str:
    at = index(window, "mean", "cpu")
    return _amounts(row[at], row[at + 1])


@lru_cache(4096)
def _heads(end: int, since: int) -> tuple[str, ...]:
    ended = f'"endtime":"{moment(end)}"'
    begun = f'{ended},"starttime":"{moment(since)}"'
    return tuple(begun if since > end - LENGTHS[window] else ended for window in WINDOWS)


def _moment(end: int, window: str) -> str:
    return f'"timestamp":"{moment(end)}","window":"{_GO_DURATIONS[window]}"'


_GO_DURATIONS: Final = {"10s": "10s", "1m": "1m0s", "1h": "1h0m0s", "1d": "24h0m0s"}


@lru_cache(4096)
def moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(4096)
def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


def cpu_text(cores: float) -> str:
    """Cores as a quantity, exact to the nano."""
    return _nanos(int(cores * 1e9 + 0.5))


def memory_text(size: float) -> str:
    """Bytes as a quantity, rounded up to the kibibyte."""
    return _kibibytes(ceil(size / 1024))


def _nanos(number: int) -> str:
    if number % 1000:
        return f"{number}n"
    if number % 1_000_000:
        return f"{number // 1000}u"
    if number % 1_000_000_000:
        return f"{number // 1_000_000}m"
    return _large(number // 1_000_000_000, 1000, "kM")


def _kibibytes(number: int) -> str:
    return f"{number}Ki" if number & 1023 else _large(number // 1024, 1024, "MGT", "i")


def _large(number: int, step: int, suffixes: str, tail: str = "") -> str:
    """The number with the largest suffix that loses nothing; memory begins at its first suffix."""
    if not number:
        return "0"
    at = 0 if tail else -1
    while number % step == 0 and at + 1 < len(suffixes):
        number //= step
        at += 1
    return f"{number}{suffixes[at]}{tail}" if at >= 0 else str(number)
