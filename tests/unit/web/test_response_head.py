"""Heads of responses: those that are kept are the same as those that are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.web.message import Response
from kedge.web.response_head import ResponseHeads

FLOW = [("X-Kubernetes-PF-FlowSchema-UID", "a"), ("X-Kubernetes-PF-PriorityLevel-UID", "b")]


def heads(date: str = "Thu, 19 Nov 2026 22:00:00 GMT") -> ResponseHeads:
    made = ResponseHeads()
    made.stamp(date)
    return made


def test_a_head_has_the_length_of_its_own_body() -> None:
    known = heads()
    first, second = (
        known.of(Response(200, b"", headers=FLOW), length, close=False, chunked=True)
        for length in (3, 12)
    )
    assert first == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        b"Date: Thu, 19 Nov 2026 22:00:00 GMT\r\nX-Kubernetes-PF-FlowSchema-UID: a\r\n"
        b"X-Kubernetes-PF-PriorityLevel-UID: b\r\nContent-Length: 3\r\n\r\n"
    )
    assert second == first.replace(b"Length: 3", b"Length: 12")


def test_a_new_second_has_a_new_date() -> None:
    known = heads()
    before = known.of(Response(), 1, close=False, chunked=True)
    known.stamp("Thu, 19 Nov 2026 22:00:01 GMT")
    after = known.of(Response(), 1, close=False, chunked=True)
    assert after == before.replace(b"22:00:00", b"22:00:01")


def test_few_heads_are_kept_and_none_with_many_fields() -> None:
    known = heads()
    for number in range(5000):
        one, many = [("A", f"{number}")], [*FLOW, ("Audit-Id", f"{number}")]
        for headers in (one, many):
            head = known.of(Response(headers=headers), 1, close=False, chunked=True)
            assert b": %d\r\n" % number in head
    assert len(known._known) <= 256
    assert not any("Audit-Id" in str(key) for key in known._known)


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\0b", "a\r\n\r\nbody"])
def test_a_kept_head_is_not_split_by_a_value(value: str) -> None:
    known = heads()
    for _ in range(2):
        head = known.of(Response(headers=[("Location", value)]), 1, close=False, chunked=True)
        assert head.count(b"\r\n") == 6
        assert head.endswith(b"\r\n\r\n")


TEXTS = st.text("aé\n\r ", max_size=3)


@given(
    st.lists(
        st.builds(
            Response,
            status=st.sampled_from([200, 201, 204, 304, 404, 299]),
            content_type=st.sampled_from(["", "application/json", "text/plain"]),
            headers=st.lists(st.tuples(st.sampled_from(["A", "B"]), TEXTS), max_size=3),
        ),
        max_size=8,
    ),
    st.sampled_from([None, 0, 7]),
    st.booleans(),
    st.booleans(),
)
def test_a_kept_head_is_that_of_a_server_that_keeps_none(
    responses: list[Response], length: int | None, close: bool, chunked: bool
) -> None:
    known = heads()
    for response in (*responses, *responses):
        kept = known.of(response, length, close=close, chunked=chunked)
        assert kept == heads().of(response, length, close=close, chunked=chunked)
        is_bodiless = response.status in (204, 304)
        assert (b"Content-Length" in kept) == (length is not None and not is_bodiless)
        assert (b"Transfer-Encoding" in kept) == (length is None and chunked)
        assert (b"Connection: close" in kept) == close
