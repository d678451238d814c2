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
    pods        namespace u32, name u32, uid u32, measured since u32, end tick u32, containers u32
    containers  name u32, measured since u32; those of the first pod, then those of the next
    rows        24 f32 each: machine, systems, totals of pods, containers

A row has, for each window (10s, 1m, 1h, 1d), for each statistic (mean, max, 95th), cores and then
bytes. -1 stands for what is not known. Times are whole seconds since the epoch; a
tick ends at its number times ten. A pod whose end tick is before that of the frame has ended: its
row says what its last windows were. The answer is an Answer in JSON, or 429 with Retry-After.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

CONTENT_TYPE: Final = "application/vnd.kedge.metrics-frame"
TICK: Final = 10
"""Seconds."""
WINDOWS: Final = ("10s", "1m", "1h", "1d")
STATISTICS: Final = ("mean", "max", "95th")
RESOURCES: Final = ("cpu", "memory")
WIDTH: Final = len(WINDOWS) * len(STATISTICS) * len(RESOURCES)
UNKNOWN: Final = -1.0

MOST_BYTES: Final = 4 << 20
MOST_PODS: Final = 5_000
MOST_CONTAINERS: Final = 20_000
MOST_SYSTEMS: Final = 64
_MOST_NAMES: Final = 3 * MOST_PODS + MOST_CONTAINERS + MOST_SYSTEMS + 2
_LONGEST: Final = 253
_POSSIBLE: Final = bytes([*range(0x5E), 0x80, 0xBF])
"""The highest byte of all numbers from 0 to 2**61, of -0 and of those around -1: neither what is
not a number has it, nor more of anything than there will be."""

_MAGIC: Final = b"KMET"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4sHH10I")
_NAMED: Final = struct.Struct("<2I")
_POD: Final = struct.Struct("<6I")
_ROW: Final = struct.Struct(f"={WIDTH}f")


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
    row: int
    """Of its total."""
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
    values: "array[float]"
    """All rows."""

    def row(self, number: int) -> tuple[float, ...]:
        """The numbers of one row; see `index` for where each is."""
        return _ROW.unpack_from(self.values, number * _ROW.size)


class Malformed(ValueError):
    """These bytes are no frame."""


def path_of(node: str) -> str:
    """Where a node's frames go."""
    return f"/kedge/metrics/v1/nodes/{quote(node, safe='')}"


def index(window: str, statistic: str, resource: str) -> int:
    """Where in a row a number is."""
    at = WINDOWS.index(window) * len(STATISTICS) + STATISTICS.index(statistic)
    return at * len(RESOURCES) + RESOURCES.index(resource)


def encode(frame: Frame) -> bytes:
    """As bytes; the rows of systems, totals and containers must be in this order."""
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
    values = _swapped(frame.values).tobytes()
    return b"".join(
        [header, _swapped(lengths).tobytes(), texts, *systems, *pods, *containers, values]
    )


def decode(body: bytes) -> Frame:
    """What the bytes say; raises Malformed, whatever they are."""
    if len(body) > MOST_BYTES:
        raise Malformed(f"a frame has at most {MOST_BYTES} bytes, this one has {len(body)}")
    try:
        return _decoded(body)
    except (struct.error, IndexError, ValueError) as error:
        raise error if isinstance(error, Malformed) else Malformed(str(error)) from error


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


def _decoded(body: bytes) -> Frame:
    magic, version, width, *head = _HEADER.unpack_from(body)
    if magic != _MAGIC or version != _VERSION or width != WIDTH:
        raise Malformed("not a frame of a version that is known here")
    end_tick, resolution, node, uid, since, *counts = head
    names_count, texts_size, systems_count, pods_count, containers_count = counts
    _limit("names", names_count, _MOST_NAMES)
    _limit("system containers", systems_count, MOST_SYSTEMS)
    _limit("pods", pods_count, MOST_PODS)
    _limit("containers", containers_count, MOST_CONTAINERS)
    parts = _Parts(body)
    names = _names(parts.take(2 * names_count), parts.take(texts_size))
    systems = _measured(parts.take(systems_count * _NAMED.size), names, 1)
    pods = parts.take(pods_count * _POD.size)
    row = 1 + systems_count
    containers = _measured(parts.take(containers_count * _NAMED.size), names, row + pods_count)
    values = _rows(parts.rest(), row + pods_count + containers_count)
    frame = Frame(
        names[node],
        names[uid],
        end_tick,
        resolution,
        since,
        tuple(systems),
        tuple(_pods(pods, names, containers, row)),
        values,
    )
    _check_whole(frame, containers)
    return frame


class _Parts:
    """Bytes, of which one part is taken after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._at = _HEADER.size

    def take(self, size: int) -> memoryview:
        part = self._body[self._at : self._at + size]
        if len(part) != size:
            raise Malformed("the frame ends too early")
        self._at += size
        return part

    def rest(self) -> memoryview:
        return self._body[self._at :]


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
    part: memoryview, names: Sequence[str], containers: Iterator[Measured], row: int
) -> Iterator[MeasuredPod]:
    for number, (namespace, name, uid, since, end_tick, count) in enumerate(_POD.iter_unpack(part)):
        inside = tuple(islice(containers, count))
        if len(inside) != count:
            raise Malformed("a pod lacks containers")
        yield MeasuredPod(
            names[namespace], names[name], names[uid], since, end_tick, row + number, inside
        )


def _rows(part: memoryview, count: int) -> "array[float]":
    if len(part) != count * _ROW.size:
        raise Malformed(f"there should be {count} rows")
    if bytes(part[3::4]).translate(None, _POSSIBLE):
        raise Malformed("a row has what is not a number, or an impossible one")
    return _swapped(array("f", bytes(part)))


def _check_whole(frame: Frame, rest: Iterator[Measured]) -> None:
    if next(rest, None) is not None:
        raise Malformed("there are containers of no pod")
    if not frame.end_tick or not frame.resolution:
        raise Malformed("the frame has no time")
    uids = {pod.uid for pod in frame.pods}
    if len(uids) != len(frame.pods):
        raise Malformed("a pod is there twice")
    for pod in frame.pods:
        if not 0 < pod.end_tick <= frame.end_tick:
            raise Malformed("a pod has other times than its node")
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
