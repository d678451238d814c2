"""Rows of a frame as JSON, in both metrics groups.

Lists have tens of thousands of rows, all new every ten seconds. Therefore one call encodes all
numbers of a row, in the smallest unit; the few that fit a larger unit are then replaced.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil
from typing import Final

import msgspec

from kedge.machinery.durations import SECOND, format_duration
from kedge.metrics import detail_windows
from kedge.metrics.detail_scale import ABSENT, value
from kedge.metrics.frame import Frame, FrameContainer, index
from kedge.metrics.windows import CORE, DETAILS, STATISTICS, TICK_SECONDS, WINDOWS, Unit

USAGE_BEGINNING: Final = b'{"metadata":'
"""JSON before the metadata of an element of a list of metrics.k8s.io."""
_PER_WINDOW: Final = len(STATISTICS) * len(CORE)
_LONGEST: Final = max(WINDOWS.values())
_UNITS: Final = (b"n", b"Ki")
_encode: Final = msgspec.json.Encoder().encode


@lru_cache(64)
def beginning(kind: str) -> bytes:
    """JSON before the metadata of an object of metrics/v1alpha1."""
    return b'{"kind":"%b","apiVersion":"metrics/v1alpha1","metadata":' % kind.encode()


def pod(
    frame: Frame, end_tick: int, measured: Sequence[FrameContainer], total: tuple[int, int]
) -> bytes:
    """JSON after the metadata of a Pod of metrics/v1alpha1; `total` is its row and first second."""
    end = end_tick * TICK_SECONDS
    pieces: list[bytes] = []
    _containers(pieces, b',"containers":[', frame, measured, end)
    if len(measured) > 1:
        row, since = total
        pieces.append(b',"total":')
        pieces += _windows(frame, row, end, since)
    pieces.append(b"}")
    return b"".join(pieces)


def node(frame: Frame) -> bytes:
    """JSON after the metadata of a Node of metrics/v1alpha1."""
    end = frame.end_tick * TICK_SECONDS
    pieces = [b',"machine":', *_windows(frame, 0, end, frame.since)]
    _containers(pieces, b',"systemContainers":[', frame, frame.systems, end)
    pieces.append(b"}")
    return b"".join(pieces)


def claim(frame: Frame, end_tick: int, row: int, since: int) -> bytes:
    """JSON after the metadata of a PersistentVolumeClaim of metrics/v1alpha1."""
    numbers = frame.row(row)
    times = zip(WINDOWS, _times(end_tick * TICK_SECONDS, since), strict=True)
    windows = [
        b'"%b":{%b,%b}' % (window.encode(), time, b",".join(_claim_statistics(numbers, window)))
        for window, time in times
    ]
    return b',"usage":{%b}}' % b",".join(windows)


def _claim_statistics(numbers: Sequence[float], window: str) -> Iterator[bytes]:
    for statistic in STATISTICS:
        amounts = {
            name: quantity(detail, numbers[at])
            for name, detail in _OF_CLAIMS.items()
            if numbers[at := index(window, statistic, detail)] >= 0
        }
        yield b'"%b":%b' % (statistic.encode(), _encode(amounts))


_OF_CLAIMS: Final = {"storage": "ephemeral-storage", "inodes": "ephemeral-inodes"}
"""The resources of a claim, and the details that they are in frames."""


def pod_usage(
    frame: Frame, end_tick: int, measured: Sequence[FrameContainer], window: str
) -> bytes:
    """JSON after the metadata of a PodMetrics of metrics.k8s.io. A container that has ended is left
    out: autoscalers count every container in the list as running."""
    at = _mean(window)
    usages = [
        b'{"name":%b,"usage":%b}' % (_quoted(each.name), usage)
        for each in measured
        if (usage := _amounts(*frame.pair(each.row, at))) != b"{}"
    ]
    return b',%b,"containers":[%b]}' % (_moment(end_tick * TICK_SECONDS, window), b",".join(usages))


def node_usage(frame: Frame, window: str) -> bytes:
    """JSON after the metadata of a NodeMetrics of metrics.k8s.io."""
    usage = _amounts(*frame.pair(0, _mean(window)))
    return b',%b,"usage":%b}' % (_moment(frame.end_tick * TICK_SECONDS, window), usage)


def metadata(name: str, namespace: str, uid: str, version: int, created: int, marks: str) -> bytes:
    """The metadata of an object; `marks` are its labels as JSON, made by the function below."""
    place = f'"namespace":"{namespace}",' if namespace else ""
    return (
        f'{{"name":"{name}",{place}"uid":"{uid}","resourceVersion":"{version}",'
        f'"creationTimestamp":"{_text(created)}"{marks}}}'
    ).encode()


def marks(labels: Mapping[str, str]) -> str:
    """JSON of labels, as the last part of metadata."""
    marks = tuple(labels.items())
    return _marks(marks) if len(marks) <= _FEW_LABELS else _encoded_marks(marks)


def _encoded_marks(labels: tuple[tuple[str, str], ...]) -> str:
    return f',"labels":{_encode(dict(labels)).decode()}' if labels else ""


_FEW_LABELS = 32
"""Results for more labels are not cached, so that clients cannot fill the memory."""
_marks = lru_cache(4096)(_encoded_marks)


def _containers(
    pieces: list[bytes], head: bytes, frame: Frame, measured: Sequence[FrameContainer], end: int
) -> None:
    for each in measured:
        pieces += (head, b'{"metadata":{"name":', _quoted(each.name), b'},"metrics":')
        pieces += _windows(frame, each.row, end, each.since)
        head = b"},"
    pieces.append(b"}]" if measured else head + b"]")


# Windows.

_AMOUNTS: Final = ",".join(f'"{each}":{{"cpu":"#n","memory":"#Ki"}}' for each in STATISTICS)
_AROUND: Final = [
    piece.encode()
    for piece in ("{" + ",".join(f'"{w}":{{@,{_AMOUNTS}}}' for w in WINDOWS) + "}").split("#")
]
"""The text around the numbers of a row: each piece begins with the unit of the number before it.
An @ stands for the times of a window."""


def _windows(frame: Frame, place: int, end: int, since: int) -> list[bytes]:
    """JSON of all windows of one row; a window begins with the first reading, if that is later."""
    row = frame.amounts(place)
    details = _details(frame.detail_row(place)) if frame.details else None
    least = min(row)
    if least < 0:
        return [_incomplete(row, end, since, details)]
    pieces = _ended(end).copy()
    if since > end - _LONGEST:
        for number, times in enumerate(_times(end, since)):
            at = number * _PER_WINDOW
            pieces[2 * at] = _AROUND[at].replace(b"@", times)
    text = _encode(row)
    pieces[1::2] = text[1:-1].split(b",")
    if not least or b"000," in text or 0 in [number & 1023 for number in row[1::2]]:
        _enlarge_units(pieces, row)
    if details is not None:
        for number, text in enumerate(details):
            at = 4 * number + 4
            pieces[at] = pieces[at].replace(b"}", text + b"}", 1)
    return pieces


@lru_cache(64)
def _ended(end: int) -> list[bytes]:
    """JSON of windows that were measured for their whole length, with gaps for the numbers."""
    times = _times(end, 0)[0]
    pieces = [b""] * (2 * len(_AROUND) - 1)
    pieces[::2] = [piece.replace(b"@", times) for piece in _AROUND]
    return pieces


def _enlarge_units(pieces: list[bytes], row: Sequence[int]) -> None:
    """Give numbers a larger unit if that is exact."""
    for at, number in enumerate(row):
        if at & 1:
            if not number & 1023:
                pieces[2 * at + 1] = _kibibytes(number)
                pieces[2 * at + 2] = pieces[2 * at + 2][2:]
        elif not number % 1000:
            pieces[2 * at + 1] = _nanos(number)
            pieces[2 * at + 2] = pieces[2 * at + 2][1:]


def _incomplete(row: Sequence[int], end: int, since: int, details: Sequence[bytes] | None) -> bytes:
    """JSON of windows with missing numbers, which are left out."""
    written = []
    texts = iter(details or _NO_DETAILS)
    for number, (window, times) in enumerate(zip(WINDOWS, _times(end, since), strict=True)):
        numbers = row[number * _PER_WINDOW :]
        maps = [
            b'"%b":%b'
            % (statistic.encode(), _with(_amounts(numbers[2 * at], numbers[2 * at + 1]), text))
            for at, (statistic, text) in enumerate(zip(STATISTICS, texts, strict=False))
        ]
        written.append(b'"%b":{%b,%b}' % (window.encode(), times, b",".join(maps)))
    return b"{%b}" % b",".join(written)


def _with(amounts: bytes, details: bytes) -> bytes:
    """JSON of amounts with further ones, which begin with a comma."""
    return amounts[:-1] + (details if len(amounts) > len(b"{}") else details[1:]) + b"}"


# Details.

_NO_DETAILS: Final = (b"",) * (len(WINDOWS) * len(STATISTICS))
_NAMES: Final = tuple(b',"%b":"' % each.name.encode() for each in DETAILS)
_DETAIL_UNITS: Final = {each.name: each.unit for each in DETAILS}
_DIGITS: Final = 4
"""Significant digits of rates and shares; codes have no more."""


def _details(row: bytes) -> Sequence[bytes] | None:
    """JSON of the details of each window and statistic, to be added to those of cpu and memory."""
    found = list(detail_windows.unpack(row))
    if not found:
        return None
    texts = [
        [b"" if code == ABSENT else _NAMES[number] + _detail(number, code) + b'"' for code in codes]
        for number, codes in found
    ]
    joined = [b"".join(column) for column in zip(*texts, strict=True)]
    return [joined[at] for at in detail_windows.SPREAD]


@lru_cache(1 << 12)
def _detail(number: int, code: int) -> bytes:
    """The quantity of a detail."""
    return detail_text(DETAILS[number].unit, value(code)).encode()


def detail_text(unit: Unit, amount: float) -> str:
    """The quantity of an amount in this unit."""
    match unit:
        case Unit.BYTES:
            # Anything with a size has at least one kibibyte.
            return _kibibytes(max(round(amount / 1024), amount > 0)).decode()
        case Unit.COUNT:
            return _large(round(amount), 1000, ("", "k", "M", "G")).decode()
        case _:
            nanos = round(amount * 1e9)
            rounding = 10 ** max(0, len(str(nanos)) - _DIGITS)
            return _nanos(round(nanos / rounding) * rounding).decode()


def _times(end: int, since: int) -> list[bytes]:
    """The end of each window, and its begin if that is later than its length says."""
    ended = b'"endtime":"%b"' % moment(end)
    begun = b'%b,"starttime":"%b"' % (ended, moment(since))
    return [begun if since > end - length else ended for length in WINDOWS.values()]


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


_GO_DURATIONS: Final = {
    name: format_duration(seconds * SECOND).encode() for name, seconds in WINDOWS.items()
}


def moment(seconds: int) -> bytes:
    return _text(seconds).encode()


@lru_cache(4096)
def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(4096)
def _quoted(name: str) -> bytes:
    return _encode(name)


def quantity(resource: str, number: float) -> str:
    """A number of a row as a quantity."""
    if resource == "cpu":
        return _nanos(round(number * 1e9)).decode()
    if resource == "memory":
        return _kibibytes(ceil(number / 1024)).decode()
    return detail_text(_DETAIL_UNITS[resource], number)


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
    """The number in the largest unit in which it is exact."""
    if not number:
        return b"0"
    at = 0
    while number % step == 0 and at + 1 < len(units):
        number //= step
        at += 1
    return b"%d%b" % (number, units[at].encode())
