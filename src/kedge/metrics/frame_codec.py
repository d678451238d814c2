"""The wire format of frames, in as few bytes as possible.

A node POSTs a frame to /kedge/metrics/v1/nodes/{node} of every API server, as itself. All numbers
are little-endian, without gaps:

    header      magic "KMET", version u16, numbers in a row u16 (24), end tick u32, resolution u32
                (seconds), node's name u32, node's uid u32, machine measured since u32, number of
                names u32, of bytes in them u32, of system containers u32, of pods u32, of
                containers u32
    names       u16 each: its length; then all of them, in UTF-8. Other parts refer to a name by its
                number.
    systems     name u32, measured since u32
    pods        namespace u32, name u32, uid u32, measured since u32, end tick u32 (0 for that of
                the frame), containers u32
    containers  name u32, measured since u32; those of the first pod, then those of the next
    rows        24 i64 each: machine, systems, totals of pods that have not exactly one container,
                containers; the lowest bytes of all numbers, then the next ones
    details     one row for each of these rows, in the same order: known u32, filled u32, then 9 u16
                for each bit of `filled`; the lower bytes of all pairs of bytes, then the upper
                ones; nothing at all if the node has measured no details

Everything after the version is compressed by zlib.

A row has, for each window, for each statistic, billionths of a core and then kibibytes, rounded up;
-1 stands for a missing number. Times are whole seconds since the epoch. A pod whose end tick is
before that of the frame has ended: its row has its last windows. The response is a FrameReply in
JSON, or 429 with Retry-After. `detail_windows` describes the rows of details. Two older versions
are read too, which have rows number by number and only the details compressed (2), or no details
(1).

Everything between the resolution and the rows is the same from one frame to the next as long as no
pod or container starts or ends. The reader compares these bytes and then decodes only the rows.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from sys import intern
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kedge.metrics import frame_packing
from kedge.metrics.detail_windows import CODES, NO_ROW
from kedge.metrics.frame import (
    ROW,
    WIDTH,
    DetailRows,
    Frame,
    FrameContainer,
    FramePod,
    in_whole_numbers,
)

PREFIX: Final = "/kedge/metrics/v1/nodes/"
CONTENT_TYPE: Final = "application/vnd.kedge.metrics-frame"

MOST_BYTES: Final = 3 << 20
MOST_PODS: Final = 5_000
MOST_CONTAINERS: Final = 20_000
MOST_SYSTEMS: Final = 64
_MOST_NAMES: Final = 3 * MOST_PODS + MOST_CONTAINERS + MOST_SYSTEMS + 2
_LONGEST: Final = 253
_POSSIBLE: Final = bytes([*range(0x20), 0xFF])
"""The highest byte of all numbers from 0 to 2**61, and of those around -1."""
_MAGIC: Final = b"KMET"
_VERSION: Final = 3
_UNPACKED: Final = (1, 2)
"""The versions of frames of earlier releases."""
_BEGIN: Final = struct.Struct("<4sH")
_MOST_PLAIN: Final = 8 << 20
"""Bytes of a frame before it is packed."""
_NUMBER: Final = 8
"""Bytes of a number in a row."""
_CODE: Final = 2
"""Bytes of a code in a row of details."""
_DETAIL_BITS: Final = 32
_DETAIL_BYTES: Final = 2 * CODES
_HEADER: Final = struct.Struct("<4sHH10I")
_NAMED: Final = struct.Struct("<2I")
_POD: Final = struct.Struct("<6I")
_TIME: Final = struct.Struct("<4sHH2I")
"""The beginning of the header; the rest of it describes the contents of the frame."""
_CAUSES: Final[dict[type[Exception], str]] = {
    struct.error: "the frame ends too early",
    IndexError: "the frame has no name of a number that it uses",
    UnicodeDecodeError: "a name is not text in UTF-8",
}
"""The meaning of each exception that reading a frame can raise."""


class FrameReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reply of a server to a frame that it has accepted."""

    resolution: int = 0
    """The number of seconds between frames that it asks for; 0 for the node's own setting."""


class MalformedFrame(ValueError):
    """The bytes are not a frame."""


def path_of(node: str) -> str:
    """The path to which a node POSTs its frames."""
    return f"{PREFIX}{quote(node, safe='')}"


def encode(frame: Frame) -> bytes:
    """The bytes of a frame."""
    return packed(plain(frame))


def packed(body: bytes) -> bytes:
    """The bytes to send, of the bytes of `plain`."""
    return body[: _BEGIN.size] + frame_packing.pack(body[_BEGIN.size :])


def plain(frame: Frame) -> bytes:
    """The bytes of a frame before they are compressed."""
    names = _NameTable()
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
        [
            *(header, _swapped(lengths).tobytes(), texts, *systems, *pods, *containers),
            *(frame_packing.by_weight(b"".join(_sent(frame)), _NUMBER), _sent_details(frame)),
        ]
    )


def decode(body: bytes) -> Frame:
    """The frame in the bytes; raises MalformedFrame for any other bytes."""
    return FrameReader().read(body)


class FrameReader:
    """Reads the frames of one node. As long as they are about the same pods, these are not decoded
    again: the next frame then has the very same object as its `pods`."""

    __slots__ = ("_known", "_last", "_latest", "_rows")

    def __init__(self) -> None:
        self._last: Frame | None = None
        self._known = b""
        """The bytes of the last frame between its resolution and its rows."""
        self._rows = 0
        self._latest = 0
        """The largest end tick of its pods."""

    def read(self, body: bytes) -> Frame:
        """The frame in the bytes; raises MalformedFrame for any other bytes."""
        if len(body) > MOST_BYTES:
            raise MalformedFrame(
                f"a frame has at most {MOST_BYTES} bytes, this one has {len(body)}"
            )
        try:
            version, body = _unpacked(body)
            end_tick, resolution = _times(body)
            last = self._last
            if last is None or not body.startswith(self._known, _TIME.size):
                last = self._begin(body)
            at = _TIME.size + len(self._known)
            end = at + self._rows * ROW.size
            values = _rows(version, body[at:end], self._rows)
            details = _details(version, body[end:], self._rows)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise MalformedFrame(_CAUSES[type(error)]) from error
        if self._latest > end_tick:
            raise MalformedFrame("a pod has other times than its node")
        node, uid, _, _, since, systems, pods, *_ = last
        return Frame(node, uid, end_tick, resolution, since, systems, pods, values, details)

    def _begin(self, body: bytes) -> Frame:
        """Decode everything but the rows."""
        self._last = None
        frame, size, rows = _described(body)
        self._known = body[_TIME.size : size]
        self._rows = rows
        self._latest = max((pod.end_tick for pod in frame.pods), default=0)
        self._last = frame
        return frame


def _sent(frame: Frame) -> Iterator[bytes]:
    """The rows, in the order of the format."""
    values = _swapped(in_whole_numbers(frame).values).tobytes()
    for row in _order(frame):
        yield values[row * ROW.size : (row + 1) * ROW.size]


def _order(frame: Frame) -> list[int]:
    """The numbers of the rows in the order of the format."""
    rows = [0, *(each.row for each in frame.systems)]
    rows += [pod.row for pod in frame.pods if len(pod.containers) != 1]
    rows += [each.row for pod in frame.pods for each in pod.containers]
    return rows


def _sent_details(frame: Frame) -> bytes:
    if not frame.details:
        return b""
    rows = [frame.details[row] or NO_ROW for row in _order(frame)]
    return frame_packing.by_weight(b"".join(rows), _CODE)


def _unpacked(body: bytes) -> tuple[int, bytes]:
    """The version of a frame, and its bytes before they were compressed."""
    magic, version = _BEGIN.unpack_from(body)
    if magic != _MAGIC or version not in (_VERSION, *_UNPACKED):
        raise MalformedFrame("not a frame of a version that is known here")
    if version in _UNPACKED:
        return version, body
    try:
        rest = frame_packing.unpack(body[_BEGIN.size :], _MOST_PLAIN - _BEGIN.size)
    except frame_packing.Unpackable as error:
        raise MalformedFrame(f"the bytes after the version are {error}") from error
    return version, body[: _BEGIN.size] + rest


class _NameTable:
    """Gives each name a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def written(self) -> tuple["array[int]", bytes]:
        """The length of each name, and all of them joined."""
        texts = [name.encode() for name in self._numbers]
        return array("H", map(len, texts)), b"".join(texts)


def _times(body: bytes) -> tuple[int, int]:
    """End tick and resolution."""
    _, _, width, end_tick, resolution = _TIME.unpack_from(body)
    if width != WIDTH:
        raise MalformedFrame("not a frame of a version that is known here")
    if not end_tick or not resolution:
        raise MalformedFrame("the frame has no time")
    return end_tick, resolution


def _described(body: bytes) -> tuple[Frame, int, int]:
    """The frame without its rows, the position of the rows, and their number."""
    _, _, _, end_tick, resolution, node, uid, since, *counts = _HEADER.unpack_from(body)
    names_count, texts_size, systems_count, pods_count, containers_count = counts
    _limit("names", names_count, _MOST_NAMES)
    _limit("system containers", systems_count, MOST_SYSTEMS)
    _limit("pods", pods_count, MOST_PODS)
    _limit("containers", containers_count, MOST_CONTAINERS)
    parts = _Cursor(body)
    names = _names(parts.take(2 * names_count), parts.take(texts_size))
    systems = tuple(_measured(parts.take(systems_count * _NAMED.size), names, 1))
    each_pod = list(_POD.iter_unpack(parts.take(pods_count * _POD.size)))
    total = 1 + systems_count
    totals = sum(pod[-1] != 1 for pod in each_pod)
    containers = _measured(parts.take(containers_count * _NAMED.size), names, total + totals)
    pods = tuple(_pods(each_pod, names, containers, total))
    if next(containers, None) is not None:
        raise MalformedFrame("there are containers of no pod")
    frame = Frame(names[node], names[uid], end_tick, resolution, since, systems, pods, array("q"))
    _check_once(frame)
    return frame, parts.at, total + totals + containers_count


class _Cursor:
    """Takes one part of the bytes after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self.at = _HEADER.size

    def take(self, size: int) -> memoryview:
        part = self._body[self.at : self.at + size]
        if len(part) != size:
            raise MalformedFrame("the frame ends too early")
        self.at += size
        return part


def _limit(what: str, count: int, most: int) -> None:
    if count > most:
        raise MalformedFrame(f"a frame has at most {most} {what}, this one has {count}")


def _names(lengths: memoryview, texts: memoryview) -> list[str]:
    found = []
    text = bytes(texts)
    at = 0
    for length in _swapped(array("H", bytes(lengths))):
        if not 0 < length <= _LONGEST:
            raise MalformedFrame(f"a name has 1 to {_LONGEST} bytes, this one has {length}")
        found.append(text[at : at + length].decode())
        at += length
    if at != len(text):
        raise MalformedFrame("the names are not as long as they are said to be")
    return found


def _measured(part: memoryview, names: Sequence[str], row: int) -> Iterator[FrameContainer]:
    for number, (name, since) in enumerate(_NAMED.iter_unpack(part)):
        yield FrameContainer(names[name], since, row + number)


def _pods(
    described: Sequence[tuple[int, ...]],
    names: Sequence[str],
    containers: Iterator[FrameContainer],
    total: int,
) -> Iterator[FramePod]:
    for namespace, name, uid, since, end_tick, count in described:
        inside = tuple(islice(containers, count))
        if len(inside) != count:
            raise MalformedFrame("a pod lacks containers")
        row = inside[0].row if count == 1 else total
        total += count != 1
        place = intern(names[namespace])  # many nodes share it
        yield FramePod(place, names[name], names[uid], since, end_tick, row, inside)


def _rows(version: int, body: bytes, count: int) -> "array[int]":
    if len(body) != count * ROW.size:
        raise MalformedFrame(f"there should be {count} rows")
    if version == _VERSION:
        body = frame_packing.by_number(body, _NUMBER)
    highest = body[7::8]
    values = _swapped(array("q", body))
    if highest.translate(None, _POSSIBLE) or (0xFF in highest and min(values) < -1):
        raise MalformedFrame("a row has an impossible number")
    return values


def _details(version: int, sent: bytes, count: int) -> Sequence[bytes]:
    """The details of all rows; none if the frame has none."""
    if not sent:
        return ()
    most = count * (len(NO_ROW) + _DETAIL_BITS * _DETAIL_BYTES)
    text = _details_text(version, sent, most)
    if len(text) > most:
        raise MalformedFrame("the details are longer than their rows")
    try:
        return DetailRows(text, count)
    except ValueError:
        raise MalformedFrame(f"there should be details of {count} rows") from None


def _details_text(version: int, sent: bytes, most: int) -> bytes:
    if version == _VERSION:
        if len(sent) % _CODE:
            raise MalformedFrame("the details end in the middle of a code")
        return frame_packing.by_number(sent, _CODE)
    try:
        return frame_packing.unpack(sent, most)
    except frame_packing.Unpackable as error:
        raise MalformedFrame(f"the details are {error}") from error


def _check_once(frame: Frame) -> None:
    uids = {pod.uid for pod in frame.pods}
    if len(uids) != len(frame.pods):
        raise MalformedFrame("a pod is there twice")
    for pod in frame.pods:
        if len(pod.containers) > 1:
            _check_names(pod.containers)
    _check_names(frame.systems)


def _check_names(containers: Sequence[FrameContainer]) -> None:
    if len({each.name for each in containers}) != len(containers):
        raise MalformedFrame("a container is there twice")


def _swapped(numbers: "array[Any]") -> "array[Any]":
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers
