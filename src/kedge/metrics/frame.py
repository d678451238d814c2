"""Frame: all that one node has to say about one tick, in as few bytes as that takes.

A node POSTs it to /kedge/metrics/v1/nodes/{node} of every API server, as itself. Everything is
little-endian and follows without gaps:

    header      magic "KMET", version u16, numbers in a row u16 (24), end tick u32, resolution u32
                (seconds), node's name u32, node's uid u32, machine measured since u32, number of
                names u32, of bytes in them u32, of system containers u32, of pods u32, of
                containers u32
    names       u16 each: how long it is; then all of them, in UTF-8. Wherever a name is needed,
                its number stands.
    systems     name u32, measured since u32
    pods        namespace u32, name u32, uid u32, measured since u32, end tick u32 (0 if it is that
                of the frame), containers u32
    containers  name u32, measured since u32; those of the first pod, then those of the next
    rows        24 i64 each: machine, systems, totals of pods that have not just one container,
                containers

A row has, for each window (10s, 1m, 1h, 1d), for each statistic (mean, max, 95th), billionths of a
core and then kibibytes, rounded up. -1 stands for what is not known. Times are whole seconds since
the epoch; a tick ends at its number times ten. A pod whose end tick is before that of the frame has
ended: its row says what its last windows were. The answer is an Answer in JSON, or 429 with
Retry-After.

All that follows the resolution and precedes the rows is the same from one frame to the next as long
as nothing begins or ends, and is then not read again.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from math import ceil
from sys import intern
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

PREFIX: Final = "/kedge/metrics/v1/nodes/"
CONTENT_TYPE: Final = "application/vnd.kedge.metrics-frame"
TICK: Final = 10
"""Seconds."""
WINDOWS: Final = ("10s", "1m", "1h", "1d")
STATISTICS: Final = ("mean", "max", "95th")
RESOURCES: Final = ("cpu", "memory")
WIDTH: Final = len(WINDOWS) * len(STATISTICS) * len(RESOURCES)
UNKNOWN: Final = -1.0

MOST_BYTES: Final = 3 << 20
MOST_PODS: Final = 5_000
MOST_CONTAINERS: Final = 20_000
MOST_SYSTEMS: Final = 64
_MOST_NAMES: Final = 3 * MOST_PODS + MOST_CONTAINERS + MOST_SYSTEMS + 2
_LONGEST: Final = 253
_POSSIBLE: Final = bytes([*range(0x20), 0xFF])
"""The highest byte of all numbers from 0 to 2**61, and of those around -1."""
_MOST: Final = 1 << 61
_FEW: Final = 1 << 20
"""Cores that nobody doubts."""

_MAGIC: Final = b"KMET"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4sHH10I")
_NAMED: Final = struct.Struct("<2I")
_POD: Final = struct.Struct("<6I")
_ROW: Final = struct.Struct(f"={WIDTH}q")
_FLOATS: Final = struct.Struct(f"={WIDTH}f")
_PAIR: Final = struct.Struct("=2q")
_TIME: Final = struct.Struct("<4sHH2I")
"""How the header begins; the rest of it says what is in the frame."""
_WRONG: Final[dict[type[Exception], str]] = {
    struct.error: "the frame ends too early",
    IndexError: "the frame has no name of a number that it uses",
    UnicodeDecodeError: "a name is not text in UTF-8",
}
"""What it means if this happens while a frame is read."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server says to a frame that it has taken."""

    resolution: int = 0
    """How many seconds apart it would like the next frames; 0 as the node was told."""


class Measured(NamedTuple):
    """A container, of a pod or of the system."""

    name: str
    since: int
    """The second at which it was first measured."""
    row: int
    """Which row is about it."""


class MeasuredPod(NamedTuple):
    """A pod."""

    namespace: str
    name: str
    uid: str
    since: int
    end_tick: int
    """0 if it is that of the frame."""
    row: int
    """Of its total; with one container that of the container is meant."""
    containers: Sequence[Measured]


class Frame(NamedTuple):
    """What a node publishes. The machine is the first row."""

    node: str
    uid: str
    end_tick: int
    resolution: int
    """Seconds between two frames of this node."""
    since: int
    """The second at which the machine was first measured."""
    systems: Sequence[Measured]
    pods: Sequence[MeasuredPod]
    values: "array[float] | array[int]"
    """All rows: as they were measured, in cores and bytes ("f"), or as they travel ("q")."""

    def row(self, number: int) -> tuple[float, ...]:
        """The numbers of one row, in cores and bytes; see `index` for where each is."""
        if self.values.typecode == "f":
            return _FLOATS.unpack_from(self.values, number * _FLOATS.size)
        amounts = iter(self.amounts(number))
        return tuple(
            each
            for cpu, memory in zip(amounts, amounts, strict=True)
            for each in (_cores(cpu), _bytes(memory))
        )

    def amounts(self, number: int) -> tuple[int, ...]:
        """The numbers of one row of a frame that has travelled: billionths of a core, kibibytes."""
        return _ROW.unpack_from(self.values, number * _ROW.size)

    def pair(self, number: int, at: int) -> tuple[int, int]:
        """Two of these numbers."""
        return _PAIR.unpack_from(self.values, number * _ROW.size + 8 * at)


class Malformed(ValueError):
    """These bytes are no frame."""


def path_of(node: str) -> str:
    """Where a node's frames go."""
    return f"{PREFIX}{quote(node, safe='')}"


def index(window: str, statistic: str, resource: str) -> int:
    """Where in a row a number is."""
    at = WINDOWS.index(window) * len(STATISTICS) + STATISTICS.index(statistic)
    return at * len(RESOURCES) + RESOURCES.index(resource)


def travelling(frame: Frame) -> Frame:
    """The frame with its rows in whole numbers, as they are after it has travelled."""
    if frame.values.typecode == "q":
        return frame
    numbers = array("q", bytes(8 * len(frame.values)))
    cores, sizes = frame.values[::2], frame.values[1::2]
    numbers[::2] = array("q", [int(n * 1e9 + 0.5) if 0 <= n < _FEW else _nanos(n) for n in cores])
    numbers[1::2] = array("q", [_kibibytes(size) for size in sizes])
    return frame._replace(values=numbers)


def encode(frame: Frame) -> bytes:
    """As bytes."""
    names = _Names()
    node, uid = names.number(frame.node), names.number(frame.uid)
    systems = [_NAMED.pack(names.number(each.name), each.since) for each in frame.systems]
    pods, containers = [], []
    for pod in frame.pods:
        numbers = (names.number(each) for each in (pod.namespace, pod.name, pod.uid))
        pods.append(_POD.pack(*numbers, pod.since, pod.end_tick, len(pod.containers)))
        for each in pod.containers:
            containers.append(_NAMED.pack(names.number(each.name), each.since))
    lengths, texts = names.written()
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        WIDTH,
        frame.end_tick,
        frame.resolution,
        node,
        uid,
        frame.since,
        len(lengths),
        len(texts),
        len(systems),
        len(pods),
        len(containers),
    )
    return b"".join(
        [header, _swapped(lengths).tobytes(), texts, *systems, *pods, *containers, *_sent(frame)]
    )


def decode(body: bytes) -> Frame:
    """What the bytes say; raises Malformed, whatever they are."""
    return Reader().read(body)


class Reader:
    """Reads the frames of one node. As long as they are about the same pods, these are not read
    again: `pods` of one frame is then `pods` of the next."""

    __slots__ = ("_known", "_last", "_latest", "_rows")

    def __init__(self) -> None:
        self._last: Frame | None = None
        self._known = b""
        """What the last frame said between its resolution and its rows."""
        self._rows = 0
        self._latest = 0
        """The last tick that a pod of it names as its end."""

    def read(self, body: bytes) -> Frame:
        """What the bytes say; raises Malformed, whatever they are."""
        if len(body) > MOST_BYTES:
            raise Malformed(f"a frame has at most {MOST_BYTES} bytes, this one has {len(body)}")
        try:
            end_tick, resolution = _times(body)
            last = self._last
            if last is None or not body.startswith(self._known, _TIME.size):
                last = self._begin(body)
            values = _rows(body, _TIME.size + len(self._known), self._rows)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise Malformed(_WRONG[type(error)]) from error
        if self._latest > end_tick:
            raise Malformed("a pod has other times than its node")
        node, uid, _, _, since, systems, pods, _ = last
        return Frame(node, uid, end_tick, resolution, since, systems, pods, values)

    def _begin(self, body: bytes) -> Frame:
        """Read what is not known yet."""
        self._last = None
        frame, size, rows = _described(body)
        self._known = body[_TIME.size : size]
        self._rows = rows
        self._latest = max((pod.end_tick for pod in frame.pods), default=0)
        self._last = frame
        return frame


def _sent(frame: Frame) -> Iterator[bytes]:
    """The rows in their order."""
    values = _swapped(travelling(frame).values).tobytes()
    rows = [0, *(each.row for each in frame.systems)]
    rows += [pod.row for pod in frame.pods if len(pod.containers) != 1]
    rows += [each.row for pod in frame.pods for each in pod.containers]
    for row in rows:
        yield values[row * _ROW.size : (row + 1) * _ROW.size]


class _Names:
    """Numbers names."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def written(self) -> tuple["array[int]", bytes]:
        """How long each is, and all of them."""
        texts = [name.encode() for name in self._numbers]
        return array("H", map(len, texts)), b"".join(texts)


def _times(body: bytes) -> tuple[int, int]:
    """When the frame ends, and its resolution."""
    magic, version, width, end_tick, resolution = _TIME.unpack_from(body)
    if magic != _MAGIC or version != _VERSION or width != WIDTH:
        raise Malformed("not a frame of a version that is known here")
    if not end_tick or not resolution:
        raise Malformed("the frame has no time")
    return end_tick, resolution


def _described(body: bytes) -> tuple[Frame, int, int]:
    """A frame without its rows, where they begin, and how many there should be."""
    _, _, _, end_tick, resolution, node, uid, since, *counts = _HEADER.unpack_from(body)
    names_count, texts_size, systems_count, pods_count, containers_count = counts
    _limit("names", names_count, _MOST_NAMES)
    _limit("system containers", systems_count, MOST_SYSTEMS)
    _limit("pods", pods_count, MOST_PODS)
    _limit("containers", containers_count, MOST_CONTAINERS)
    parts = _Parts(body)
    names = _names(parts.take(2 * names_count), parts.take(texts_size))
    systems = tuple(_measured(parts.take(systems_count * _NAMED.size), names, 1))
    each_pod = list(_POD.iter_unpack(parts.take(pods_count * _POD.size)))
    total = 1 + systems_count
    totals = sum(pod[-1] != 1 for pod in each_pod)
    containers = _measured(parts.take(containers_count * _NAMED.size), names, total + totals)
    pods = tuple(_pods(each_pod, names, containers, total))
    if next(containers, None) is not None:
        raise Malformed("there are containers of no pod")
    frame = Frame(names[node], names[uid], end_tick, resolution, since, systems, pods, array("q"))
    _check_once(frame)
    return frame, parts.at, total + totals + containers_count


class _Parts:
    """Bytes, of which one part is taken after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self.at = _HEADER.size

    def take(self, size: int) -> memoryview:
        part = self._body[self.at : self.at + size]
        if len(part) != size:
            raise Malformed("the frame ends too early")
        self.at += size
        return part


def _limit(what: str, count: int, most: int) -> None:
    if count > most:
        raise Malformed(f"a frame has at most {most} {what}, this one has {count}")


def _names(lengths: memoryview, texts: memoryview) -> list[str]:
    found = []
    text = bytes(texts)
    at = 0
    for length in _swapped(array("H", bytes(lengths))):
        if not 0 < length <= _LONGEST:
            raise Malformed(f"a name has 1 to {_LONGEST} bytes, this one has {length}")
        found.append(text[at : at + length].decode())
        at += length
    if at != len(text):
        raise Malformed("the names are not as long as they are said to be")
    return found


def _measured(part: memoryview, names: Sequence[str], row: int) -> Iterator[Measured]:
    for number, (name, since) in enumerate(_NAMED.iter_unpack(part)):
        yield Measured(names[name], since, row + number)


def _pods(
    described: Sequence[tuple[int, ...]],
    names: Sequence[str],
    containers: Iterator[Measured],
    total: int,
) -> Iterator[MeasuredPod]:
    for namespace, name, uid, since, end_tick, count in described:
        inside = tuple(islice(containers, count))
        if len(inside) != count:
            raise Malformed("a pod lacks containers")
        row = inside[0].row if count == 1 else total
        total += count != 1
        place = intern(names[namespace])  # which many nodes name
        yield MeasuredPod(place, names[name], names[uid], since, end_tick, row, inside)


def _rows(body: bytes, at: int, count: int) -> "array[int]":
    if len(body) - at != count * _ROW.size:
        raise Malformed(f"there should be {count} rows")
    highest = body[at + 7 :: 8]
    values = _swapped(array("q", body[at:]))
    if highest.translate(None, _POSSIBLE) or (0xFF in highest and min(values) < -1):
        raise Malformed("a row has an impossible number")
    return values


def _check_once(frame: Frame) -> None:
    uids = {pod.uid for pod in frame.pods}
    if len(uids) != len(frame.pods):
        raise Malformed("a pod is there twice")
    for pod in frame.pods:
        if len(pod.containers) > 1:
            _check_names(pod.containers)
    _check_names(frame.systems)


def _check_names(containers: Sequence[Measured]) -> None:
    if len({each.name for each in containers}) != len(containers):
        raise Malformed("a container is there twice")


def _swapped(numbers: "array[Any]") -> "array[Any]":
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers


def _nanos(cores: float) -> int:
    """Billionths of a core; what is not known, or no number at all, is -1."""
    return min(int(cores * 1e9 + 0.5), _MOST - 1) if 0 <= cores < _MOST else -1


def _kibibytes(size: float) -> int:
    return ceil(size / 1024) if 0 <= size < _MOST else -1


def _cores(nanos: int) -> float:
    return nanos / 1e9 if nanos >= 0 else UNKNOWN


def _bytes(kibibytes: int) -> float:
    return float(kibibytes << 10) if kibibytes >= 0 else UNKNOWN
