"""Rows of numbers as JSON: what clients get of an object, joined from numbers and what is between.

Lists have tens of thousands of these, all new every ten seconds. All numbers of a row are therefore
turned into text by one call, with the smallest unit; the few that a larger unit suits are mended.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from kedge.metrics.frame import (
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
BEGINNINGS: Final = {
    kind: b'{"kind":"%b","apiVersion":"metrics/v1alpha1","metadata":' % kind.encode()
    for kind in ("Pod", "Node")
}
"""What precedes the metadata of an object of a kind of metrics/v1alpha1."""
USAGE_BEGINNING: Final = b'{"metadata":'
"""What precedes that of an element of a list of metrics.k8s.io."""
_PER_WINDOW: Final = len(STATISTICS) * len(RESOURCES)
_UNITS: Final = (b"n", b"Ki")
_encode: Final = msgspec.json.Encoder().encode


def pod(frame: Frame, end_tick: int, measured: Sequence[Measured], total: tuple[int, int]) -> bytes:
    """What follows the metadata of a Pod of metrics/v1alpha1; `total`: its row and since when."""
    end = end_tick * TICK
    pieces: list[bytes] = []
    _containers(pieces, b',"containers":[', frame, measured, end)
    if len(measured) > 1:
        row, since = total
        pieces.append(b',"total":')
        pieces += _windows(frame.amounts(row), end, since)
    pieces.append(b"}")
    return b"".join(pieces)


def node(frame: Frame) -> bytes:
    """What follows the metadata of a Node of metrics/v1alpha1."""
    end = frame.end_tick * TICK
    pieces = [b',"machine":', *_windows(frame.amounts(0), end, frame.since)]
    _containers(pieces, b',"systemContainers":[', frame, frame.systems, end)
    pieces.append(b"}")
    return b"".join(pieces)


def pod_usage(frame: Frame, end_tick: int, measured: Sequence[Measured], window: str) -> bytes:
    """What follows the metadata of a PodMetrics of metrics.k8s.io. A container that has ended uses
    nothing, and is left out: autoscalers take one that is there for one that runs."""
    at = _mean(window)
    usages = [
        b'{"name":%b,"usage":%b}' % (_quoted(each.name), usage)
        for each in measured
        if (usage := _amounts(*frame.pair(each.row, at))) != b"{}"
    ]
    return b',%b,"containers":[%b]}' % (_moment(end_tick * TICK, window), b",".join(usages))


def node_usage(frame: Frame, window: str) -> bytes:
    """What follows the metadata of a NodeMetrics of metrics.k8s.io."""
    usage = _amounts(*frame.pair(0, _mean(window)))
    return b',%b,"usage":%b}' % (_moment(frame.end_tick * TICK, window), usage)


def metadata(name: str, namespace: str, uid: str, version: int, created: int, marks: str) -> bytes:
    """The metadata of an object; `marks` are its labels, written by the function below."""
    place = f'"namespace":"{namespace}",' if namespace else ""
    return (
        f'{{"name":"{name}",{place}"uid":"{uid}","resourceVersion":"{version}",'
        f'"creationTimestamp":"{_text(created)}"{marks}}}'
    ).encode()


def marks(labels: Mapping[str, str]) -> str:
    """Labels as the last part of metadata."""
    return _marks(tuple(labels.items()))


@lru_cache(4096)
def _marks(labels: tuple[tuple[str, str], ...]) -> str:
    return f',"labels":{_encode(dict(labels)).decode()}' if labels else ""


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


def moment(seconds: int) -> bytes:
    return _text(seconds).encode()


@lru_cache(4096)
def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
