"""Frames: what is written is read, and what is no frame is refused whatever it is."""

import struct
import zlib
from array import array
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.metrics.detail_windows import MASKS, SIZE, DetailWindows, unpack
from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod, index
from kedge.metrics.frame_codec import (
    MOST_BYTES,
    FrameReader,
    MalformedFrame,
    decode,
    encode,
    packed,
    path_of,
    plain,
)
from kedge.metrics.frame_packing import by_number, by_weight
from kedge.metrics.windows import DETAILS

names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz-0123456789é", min_size=1, max_size=60)
numbers = st.one_of(st.just(-1), st.integers(0, 2**61 - 1))
seconds = st.integers(0, 2**32 - 1)


@st.composite
def some_frames(draw: st.DrawFn) -> Frame:
    rows = count(1)
    systems = [
        FrameContainer(name, draw(seconds), next(rows))
        for name in draw(st.lists(names, unique=True, max_size=4))
    ]
    end_tick = draw(st.integers(1, 2**32 - 1))
    inside = draw(st.lists(st.lists(names, unique=True, max_size=3), max_size=6))
    uids = draw(st.lists(names, unique=True, min_size=len(inside), max_size=len(inside)))
    totals = [0 if len(each) == 1 else next(rows) for each in inside]
    pods = []
    for uid, row, containers in zip(uids, totals, inside, strict=True):
        measured = tuple(FrameContainer(name, draw(seconds), next(rows)) for name in containers)
        times = (draw(seconds), draw(st.integers(0, end_tick)))
        row = row or measured[0].row
        pods.append(FramePod(draw(names), draw(names), uid, *times, row, measured))
    values = array("q", draw(st.lists(numbers, min_size=4, max_size=4)) * (6 * next(rows)))
    resolution = draw(st.integers(1, 3600))
    node, uid = draw(names), draw(names)
    return Frame(
        node, uid, end_tick, resolution, draw(seconds), tuple(systems), tuple(pods), values
    )


@given(some_frames())
def test_what_is_written_is_read(frame: Frame) -> None:
    assert decode(encode(frame)) == frame


@given(st.binary(max_size=300))
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode(body)


@given(some_frames(), st.data())
def test_bytes_that_were_changed_are_a_frame_or_are_refused(
    frame: Frame, data: st.DataObject
) -> None:
    body = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(body))
    except MalformedFrame:
        return
    assert decode(encode(found)) == found


@given(some_frames(), st.data())
def test_a_part_of_a_frame_is_refused(frame: Frame, data: st.DataObject) -> None:
    body = encode(frame)
    with pytest.raises(MalformedFrame):
        decode(body[: data.draw(st.integers(0, len(body) - 1))])
    with pytest.raises(MalformedFrame):
        decode(body + b"\0")


POD = FramePod("shop", "web", "u1", 50, 10, 1, (FrameContainer("main", 50, 2),))


def one_pod(values: "array[float] | array[int]", *pods: FramePod) -> Frame:
    return Frame("n1", "u0", 10, 60, 40, (), pods or (POD,), values)


ROWS = array("f", [0.5] * (3 * WIDTH))


@pytest.mark.parametrize("number", [2**61, 2**63 - 1, -7, -(2**63)])
def test_numbers_that_nothing_can_have_are_refused(number: int) -> None:
    values = array("q", [5] * (3 * WIDTH))
    values[60] = number
    with pytest.raises(MalformedFrame, match="an impossible number"):
        decode(encode(one_pod(values)))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 3e38, -7.0])
def test_what_cannot_have_been_measured_travels_as_unknown(number: float) -> None:
    values = array("f", ROWS)
    values[60] = number
    frame = decode(encode(one_pod(values)))
    assert frame.row(1)[60 - 2 * WIDTH] == -1


@given(st.lists(st.floats(0, 2.0**30, width=32), min_size=3 * WIDTH, max_size=3 * WIDTH))
def test_numbers_travel_to_the_nano_and_rounded_up_to_the_kibibyte(floats: list[float]) -> None:
    frame = decode(encode(one_pod(array("f", floats))))
    for sent, found in zip(floats[:WIDTH:2], frame.amounts(0)[::2], strict=True):
        assert abs(found - sent * 1e9) <= max(1, found * 1e-15)
    for sent, found in zip(floats[1:WIDTH:2], frame.amounts(0)[1::2], strict=True):
        assert (found - 1) * 1024 < sent <= found * 1024


def test_who_is_measured_is_read_again_only_when_it_changes() -> None:
    reader = FrameReader()
    first = reader.read(encode(one_pod(ROWS, POD._replace(end_tick=0))))
    values = array("f", [0.25] * (3 * WIDTH))
    later = one_pod(values, POD._replace(end_tick=0))._replace(end_tick=11, resolution=10)
    second = reader.read(encode(later))
    assert second.pods is first.pods
    assert (second.end_tick, second.resolution) == (11, 10)
    assert second.amounts(0)[0] == 250_000_000
    third = reader.read(encode(later._replace(since=41)))
    assert third.since == 41
    assert third.pods is not first.pods
    assert third == decode(encode(later._replace(since=41)))


@given(st.lists(some_frames(), max_size=4), st.data())
def test_what_was_read_before_never_changes_what_is_read(
    before: list[Frame], data: st.DataObject
) -> None:
    reader = FrameReader()
    for each in before:
        body = bytearray(encode(each))
        if data.draw(st.booleans()):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        read, fresh = (_read_or_not(one, bytes(body)) for one in (reader, FrameReader()))
        assert read == fresh


def _read_or_not(reader: FrameReader, body: bytes) -> Frame | None:
    try:
        return reader.read(body)
    except MalformedFrame:
        return None


def test_pods_and_containers_are_there_once() -> None:
    twice = POD._replace(containers=(*POD.containers, FrameContainer("main", 50, 3)))
    with pytest.raises(MalformedFrame, match="a container is there twice"):
        decode(encode(one_pod(array("f", [0.5] * (4 * WIDTH)), twice)))
    empty = POD._replace(containers=(), row=1)
    with pytest.raises(MalformedFrame, match="a pod is there twice"):
        decode(encode(one_pod(ROWS, empty, empty)))


def test_a_pod_is_not_ahead_of_its_node() -> None:
    with pytest.raises(MalformedFrame, match="other times"):
        decode(encode(one_pod(ROWS, POD._replace(end_tick=11))))


def test_it_is_said_what_is_wrong() -> None:
    body = plain(one_pod(ROWS))
    for cut in (body[:5], packed(body[:9]), packed(body[:30])):
        with pytest.raises(MalformedFrame, match=r"^the frame ends too early$"):
            decode(cut)
    with pytest.raises(MalformedFrame, match=r"^a name is not text in UTF-8$"):
        decode(packed(body.replace(b"shop", b"sh\xff\xff")))
    nameless = bytearray(body)
    struct.pack_into("<I", nameless, 16, 77)
    with pytest.raises(MalformedFrame, match=r"^the frame has no name of a number that it uses$"):
        decode(packed(bytes(nameless)))
    sent = packed(body)
    for broken, why in (
        (body, "not compressed"),
        (sent[:-3], "cut off"),
        (sent + b"x", "cut off"),
        (packed(body[:6] + bytes(9 << 20)), "longer than allowed"),
    ):
        with pytest.raises(MalformedFrame, match=f"^the bytes after the version are .*{why}"):
            decode(broken)


@pytest.mark.parametrize(("offset", "what"), [(28, "names"), (40, "pods"), (44, "containers")])
def test_counts_have_limits_that_are_looked_at_first(offset: int, what: str) -> None:
    body = bytearray(plain(one_pod(ROWS)))
    struct.pack_into("<I", body, offset, 2**32 - 1)
    with pytest.raises(MalformedFrame, match=f"at most [0-9]+ {what}"):
        decode(packed(bytes(body)))


def test_too_many_bytes_are_not_looked_at() -> None:
    with pytest.raises(MalformedFrame, match="at most 3145728 bytes"):
        decode(bytes(MOST_BYTES + 1))


def test_another_version_is_refused() -> None:
    body = bytearray(encode(one_pod(ROWS)))
    body[4] = 4
    with pytest.raises(MalformedFrame, match="of a version that is known here"):
        decode(bytes(body))


def test_rows_are_in_the_order_that_is_documented() -> None:
    two = POD._replace(containers=(FrameContainer("main", 50, 2), FrameContainer("side", 50, 3)))
    frame = decode(encode(one_pod(array("q", range(4 * WIDTH)), two)))
    assert frame.amounts(0)[index("10s", "mean", "cpu")] == 0
    assert frame.amounts(0)[index("1d", "95th", "memory")] == 23
    (pod,) = frame.pods
    assert frame.amounts(pod.row)[index("1m", "max", "cpu")] == 24 + 8
    assert frame.amounts(pod.containers[0].row)[index("1h", "mean", "memory")] == 48 + 13
    assert frame.pair(pod.containers[1].row, index("10s", "max", "cpu")) == (72 + 2, 72 + 3)


def test_a_pod_of_one_container_has_no_row_of_its_own() -> None:
    frame = decode(encode(one_pod(array("q", range(3 * WIDTH)))))
    (pod,) = frame.pods
    assert pod.row == pod.containers[0].row == 1
    assert frame.amounts(pod.row)[0] == 48


def test_a_hundred_containers_take_about_ten_kilobytes_beside_their_names() -> None:
    pods = tuple(
        FramePod("shop", f"p{i}", f"u{i}", 1, 10, 1 + i, (FrameContainer("main", 1, 101 + i),))
        for i in range(100)
    )
    frame = Frame("n1", "u0", 10, 60, 1, (), pods, array("f", [1.0] * (201 * WIDTH)))
    assert len(encode(frame)) < 201 * 4 * WIDTH + 100 * 48


def test_a_node_is_named_in_the_path() -> None:
    assert path_of("n1") == "/kedge/metrics/v1/nodes/n1"


def test_details_are_sent_with_their_rows() -> None:
    windows = DetailWindows(memoryview(bytearray(SIZE)))
    windows.put(1, [float(number) for number in range(len(DETAILS))])
    frame = one_pod(ROWS)
    rows = len(frame.values) // WIDTH
    sent = frame._replace(details=[b""] * (rows - 1) + [windows.row()])
    read = decode(encode(sent))
    last = read.row(read.pods[-1].containers[-1].row)
    assert len(last) == WIDTH + 12 * len(DETAILS)
    assert last[index("1h", "95th", "disk-write")] == pytest.approx(3, rel=0.001)
    assert read.row(0)[index("1h", "95th", "disk-write")] == -1
    assert decode(encode(frame)).details == ()


def test_details_that_are_not_of_the_rows_are_refused() -> None:
    frame = one_pod(ROWS)
    body = plain(frame)
    rows = len(decode(encode(frame)).values) // WIDTH
    row = MASKS.pack(3, 1) + bytes(18)
    for text, why in (
        (row * (rows - 1), "too early"),
        (row * (rows + 1), "longer than|details of"),
        (row * rows + bytes(8), "details of"),
        (MASKS.pack(0, 0xFFFF_FFFF) + bytes(1 << 20), "longer than"),
    ):
        with pytest.raises(MalformedFrame, match=why):
            decode(packed(body + by_weight(text, 2)))
        with pytest.raises(MalformedFrame, match=why):
            decode(second_version(frame) + zlib.compress(text))
    with pytest.raises(MalformedFrame, match="in the middle of a code"):
        decode(packed(body + b"x"))
    for tail in (b"not compressed", zlib.compress(row * rows)[:-5], zlib.compress(row) + b"x"):
        with pytest.raises(MalformedFrame):
            decode(second_version(frame) + tail)


def second_version(frame: Frame) -> bytes:
    """A frame without details as the release before sent it."""
    body = plain(frame)
    at = len(body) - WIDTH * 8 * (len(decode(encode(frame)).values) // WIDTH)
    return body[:4] + b"\2\0" + body[6:at] + by_number(body[at:], 8)


def test_details_of_a_later_release_are_left_out() -> None:
    frame = one_pod(ROWS)
    rows = len(decode(encode(frame)).values) // WIDTH
    row = MASKS.pack(0xFFFF_FFFF, 1 << 31 | 1 << 2) + struct.pack("<9H", *[9] * 9) + bytes(18)
    for sent in (
        packed(plain(frame) + by_weight(row * rows, 2)),
        second_version(frame) + zlib.compress(row * rows),
    ):
        assert [each.number for each in unpack(decode(sent).details[0])] == [2]


def test_frames_of_earlier_releases_are_read() -> None:
    body = bytearray(second_version(one_pod(ROWS)))
    for version in (2, 1):
        body[4] = version
        assert decode(bytes(body)) == decode(encode(one_pod(ROWS)))
