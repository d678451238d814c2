"""Frames: what is written is read, and what is no frame is refused whatever it is."""

import struct
from array import array
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.metrics_v1alpha1 import frame as frames
from kedge.api.metrics_v1alpha1.frame import (
    WIDTH,
    Frame,
    Malformed,
    Measured,
    MeasuredPod,
    decode,
    encode,
    index,
    path_of,
)

names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz-0123456789é", min_size=1, max_size=60)
numbers = st.one_of(st.just(-1.0), st.floats(min_value=0, max_value=2.0**60, width=32))
seconds = st.integers(0, 2**32 - 1)


@st.composite
def some_frames(draw: st.DrawFn) -> Frame:
    rows = count(1)
    systems = [
        Measured(name, draw(seconds), next(rows))
        for name in draw(st.lists(names, unique=True, max_size=4))
    ]
    end_tick = draw(st.integers(1, 2**32 - 1))
    uids = draw(st.lists(names, unique=True, max_size=6))
    totals = [next(rows) for _ in uids]
    pods = [
        MeasuredPod(
            draw(names),
            draw(names),
            uid,
            draw(seconds),
            draw(st.integers(1, end_tick)),
            row,
            tuple(
                Measured(name, draw(seconds), next(rows))
                for name in draw(st.lists(names, unique=True, max_size=3))
            ),
        )
        for uid, row in zip(uids, totals, strict=True)
    ]
    values = array("f", draw(st.lists(numbers, min_size=4, max_size=4)) * (6 * next(rows)))
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
    with pytest.raises(Malformed):
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
    except Malformed:
        return
    assert decode(encode(found)) == found


@given(some_frames(), st.data())
def test_a_part_of_a_frame_is_refused(frame: Frame, data: st.DataObject) -> None:
    body = encode(frame)
    with pytest.raises(Malformed):
        decode(body[: data.draw(st.integers(0, len(body) - 1))])
    with pytest.raises(Malformed):
        decode(body + b"\0")


POD = MeasuredPod("shop", "web", "u1", 50, 10, 1, (Measured("main", 50, 2),))


def one_pod(values: "array[float]", *pods: MeasuredPod) -> Frame:
    return Frame("n1", "u0", 10, 60, 40, (), pods or (POD,), values)


ROWS = array("f", [0.5] * (3 * WIDTH))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 3e38, -7.0])
def test_numbers_that_nothing_can_have_are_refused(number: float) -> None:
    values = array("f", ROWS)
    values[30] = number
    with pytest.raises(Malformed, match="not a number, or an impossible one"):
        decode(encode(one_pod(values)))


def test_pods_and_containers_are_there_once() -> None:
    twice = POD._replace(containers=(*POD.containers, Measured("main", 50, 3)))
    with pytest.raises(Malformed, match="a container is there twice"):
        decode(encode(one_pod(array("f", [0.5] * (4 * WIDTH)), twice)))
    empty = POD._replace(containers=())
    with pytest.raises(Malformed, match="a pod is there twice"):
        decode(encode(one_pod(ROWS, empty, empty)))


def test_a_pod_is_not_ahead_of_its_node() -> None:
    with pytest.raises(Malformed, match="other times"):
        decode(encode(one_pod(ROWS, POD._replace(end_tick=11))))


@pytest.mark.parametrize(("offset", "what"), [(28, "names"), (40, "pods"), (44, "containers")])
def test_counts_have_limits_that_are_looked_at_first(offset: int, what: str) -> None:
    body = bytearray(encode(one_pod(ROWS)))
    struct.pack_into("<I", body, offset, 2**32 - 1)
    with pytest.raises(Malformed, match=f"at most [0-9]+ {what}"):
        decode(bytes(body))


def test_too_many_bytes_are_not_looked_at() -> None:
    with pytest.raises(Malformed, match="at most 4194304 bytes"):
        decode(bytes(frames.MOST_BYTES + 1))


def test_another_version_is_refused() -> None:
    body = bytearray(encode(one_pod(ROWS)))
    body[4] = 2
    with pytest.raises(Malformed, match="of a version that is known here"):
        decode(bytes(body))


def test_rows_are_in_the_order_that_is_documented() -> None:
    values = array("f", range(3 * WIDTH))
    frame = decode(encode(one_pod(values)))
    assert frame.row(0)[index("10s", "mean", "cpu")] == 0
    assert frame.row(0)[index("1d", "95th", "memory")] == 23
    assert frame.row(frame.pods[0].row)[index("1m", "max", "cpu")] == 24 + 8
    assert frame.row(frame.pods[0].containers[0].row)[index("1h", "mean", "memory")] == 48 + 13


def test_a_hundred_containers_take_about_ten_kilobytes_beside_their_names() -> None:
    pods = tuple(
        MeasuredPod("shop", f"p{i}", f"u{i}", 1, 10, 1 + i, (Measured("main", 1, 101 + i),))
        for i in range(100)
    )
    frame = Frame("n1", "u0", 10, 60, 1, (), pods, array("f", [1.0] * (201 * WIDTH)))
    assert len(encode(frame)) < 201 * 4 * WIDTH + 100 * 48


def test_a_node_is_named_in_the_path() -> None:
    assert path_of("n1") == "/kedge/metrics/v1/nodes/n1"
