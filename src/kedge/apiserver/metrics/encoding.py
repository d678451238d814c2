"""Rows of numbers as JSON: what clients get of an object, joined from numbers and what is between.

Lists have tens of thousands of these, all new every ten seconds. All numbers of a row are therefore
turned into text by one call, with the smallest unit; the few that a larger unit suits are mended.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
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
_PER_WINDOW: Final = len(STATISTICS) * len(RESOURCES)
_UNITS: Final = (b"n", b"Ki")
_encode: Final = msgspec.json.Encoder().encode


def pod(
    metadata: bytes,
    frame: Frame,
    end_tick: int,
    measured: Sequence[Measured],
    total: tuple[int, int],
) -> bytes:
    """A Pod of metrics/v1alpha1; `metadata` is JSON, `total` its row and since when."""
    end = end_tick * TICK
    pieces = [b'{"kind":"Pod","apiVersion":"metrics/v1alpha1","metadata":', metadata]
    _containers(pieces, b',"containers":[', frame, measured, end)
    if len(measured) > 1:
        row, since = total
        pieces.append(b',"total":')
        pieces += _windows(frame.amounts(row), end, since)
    pieces.append(b"}")
    return b"".join(pieces)


def node(metadata: bytes, frame: Frame) -> bytes:
    """A Node of metrics/v1alpha1."""
    end = frame.end_tick * TICK
    pieces = [b'{"kind":"Node","apiVersion":"metrics/v1alpha1","metadata":', metadata]
    pieces.append(b',"machine":')
    pieces += _windows(frame.amounts(0), end, frame.since)
    _containers(pieces, b',"systemContainers":[', frame, frame.systems, end)
    pieces.append(b"}")
    return b"".join(pieces)


def pod_usage(
    metadata: bytes, frame: Frame, end_tick: int, measured: Sequence[Measured], window: str
) -> bytes:
    """A PodMetrics of metrics.k8s.io as an element of a list."""
    at = _mean(window)
    usages = [
        b'{"name":%b,"usage":%b}' % (_quoted(each.name), _amounts(*frame.pair(each.row, at)))
        for each in measured
    ]
    return b'{"metadata":%b,%b,"containers":[%b]}' % (
        metadata,
        _moment(end_tick * TICK, window),
        b",".join(usages),
    )


def node_usage(metadata: bytes, frame: Frame, window: str) -> bytes:
    """A NodeMetrics of metrics.k8s.io as an element of a list."""
    usage = _amounts(*frame.pair(0, _mean(window)))
    moment = _moment(frame.end_tick * TICK, window)
    return b'{"metadata":%b,%b,"usage":%b}' % (metadata, moment, usage)


def metadata(name: str, namespace: str, uid: str, created: int, labels: Mapping[str, str]) -> bytes:
    """The metadata of an object, with %d for the number of its version."""
    place = f'"namespace":"{namespace}",' if namespace else ""
    head = f'{{"name":"{name}",{place}"uid":"{uid}","resourceVersion":"'.encode()
    marks = b',"labels":' + _encode(labels) if labels else b""
    tail = b'","creationTimestamp":"%b"%b}' % (moment(created), marks)
    return head.replace(b"%", b"%%") + b"%d" + tail.replace(b"%", b"%%")


def _containers(
    pieces: list[bytes], head: bytes, frame: Frame, measured: Sequence[Measured], end: int
) -> None:
    for each in measured:
        pieces += (head, b'{"metadata":{"name":', _quoted(each.name), b'},"metrics":')
        pieces += _windows(frame.amounts(each.row), end, each.since)
        head = b"},"
    pieces.append(b"}]" if measured else head + b"]")


# Windows.

_AMOUNTS: Final = ",".join(f'"{each}":{{"cpu":"#n","memory":"#Ki"}}' for each in STATISTICS)
_AROUND: Final = [
    piece.encode()
    for piece in ("{" + ",".join(f'"{w}":{{@,{_AMOUNTS}}}' for w in WINDOWS) + "}").split("#")
]
"""What is before each number, beginning with the unit of the one before, and after the last; where
there is an @, times go."""


def _windows(row: Sequence[int], end: int, since: int) -> list[bytes]:
    """All windows of one row, which end together; one begins when the measuring did, if later."""
    least = min(row)
    if least < 0:
        return [_incomplete(row, end, since)]
    pieces = _ended(end).copy()
    if since > end - LENGTHS[WINDOWS[-1]]:
        for number, times in enumerate(_times(end, since)):
            at = number * _PER_WINDOW
            pieces[2 * at] = _AROUND[at].replace(b"@", times)
    text = _encode(row)
    pieces[1::2] = text[1:-1].split(b",")
    if not least or b"000," in text or 0 in [number & 1023 for number in row[1::2]]:
        _mend(pieces, row)
    return pieces


@lru_cache(64)
def _ended(end: int) -> list[bytes]:
    """Windows of things that were measured from their beginning on, with room for numbers."""
    times = _times(end, 0)[0]
    pieces = [b""] * (2 * len(_AROUND) - 1)
    pieces[::2] = [piece.replace(b"@", times) for piece in _AROUND]
    return pieces


def _mend(pieces: list[bytes], row: Sequence[int]) -> None:
    """Give those a larger unit that lose nothing by it."""
    for at, number in enumerate(row):
        if at & 1:
            if not number & 1023:
                pieces[2 * at + 1] = _kibibytes(number)
                pieces[2 * at + 2] = pieces[2 * at + 2][2:]
        elif not number % 1000:
            pieces[2 * at + 1] = _nanos(number)
            pieces[2 * at + 2] = pieces[2 * at + 2][1:]


def _incomplete(row: Sequence[int], end: int, since: int) -> bytes:
    """Windows of which not everything is known; what is not known is left out."""
    written = []
    for number, (window, times) in enumerate(zip(WINDOWS, _times(end, since), strict=True)):
        numbers = row[number * _PER_WINDOW :]
        maps = [
            b'"%b":%b' % (statistic.encode(), _amounts(numbers[2 * at], numbers[2 * at + 1]))
            for at, statistic in enumerate(STATISTICS)
        ]
        written.append(b'"%b":{%b,%b}' % (window.encode(), times, b",".join(maps)))
    return b"{%b}" % b",".join(written)


def _times(end: int, since: int) -> list[bytes]:
    """When each window ends, and when it begins if that is later than it should."""
    ended = b'"endtime":"%b"' % moment(end)
    begun = b'%b,"starttime":"%b"' % (ended, moment(since))
    return [begun if since > end - length else ended for length in LENGTHS.values()]


def _amounts(cpu: int, memory: int) -> bytes:
    if cpu > 0 and memory > 0 and cpu % 1000 and memory & 1023:
        return b'{"cpu":"%dn","memory":"%dKi"}' % (cpu, memory)
    known = [b'"cpu":"%b"' % _nanos(cpu)] if cpu >= 0 else []
    if memory >= 0:
        known.append(b'"memory":"%b"' % _kibibytes(memory))
    return b"{%b}" % b",".join(known)


@lru_cache(16)
def _mean(window: str) -> int:
    return index(window, "mean", "cpu")


@lru_cache(64)
def _moment(end: int, window: str) -> bytes:
    return b'"timestamp":"%b","window":"%b"' % (moment(end), _GO_DURATIONS[window])


_GO_DURATIONS: Final = {"10s": b"10s", "1m": b"1m0s", "1h": b"1h0m0s", "1d": b"24h0m0s"}


@lru_cache(4096)
def moment(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


@lru_cache(4096)
def _quoted(name: str) -> bytes:
    return _encode(name)


def _nanos(number: int) -> bytes:
    """Billionths of a core as a quantity."""
    if number % 1000:
        return b"%dn" % number
    if number % 1_000_000:
        return b"%du" % (number // 1000)
    if number % 1_000_000_000:
        return b"%dm" % (number // 1_000_000)
    return _large(number // 1_000_000_000, 1000, ("", "k", "M", "G"))


def _kibibytes(number: int) -> bytes:
    return _large(number, 1024, ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))


def _large(number: int, step: int, units: Sequence[str]) -> bytes:
    """The number in the largest unit that loses nothing."""
    if not number:
        return b"0"
    at = 0
    while number % step == 0 and at + 1 < len(units):
        number //= step
        at += 1
    return b"%d%b" % (number, units[at].encode())
