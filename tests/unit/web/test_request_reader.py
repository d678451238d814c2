"""Requests as the reader finds them, also those that it reads without the parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.errors import StatusError
from kedge.web.limits import ServerLimits
from kedge.web.request_reader import RequestReader

FIELDS = b"Host: a\r\nAuthorization: Bearer b\r\n\r\n"


class Reading:
    """Keeps what a reader tells its connection."""

    def __init__(self, limits: ServerLimits | None = None, *, forgets: bool = False) -> None:
        """`forgets` makes the reader parse each request."""
        self.closing = False
        self.requests: list[tuple[str, bytes, dict[str, str], bytes, bool, bool]] = []
        self.begun = 0
        self.refusals: list[int] = []
        self.reader = RequestReader(self, limits or ServerLimits())
        self._forgets = forgets

    def feed(self, *pieces: bytes) -> "Reading":
        for piece in pieces:
            if self.closing:
                break
            if self._forgets:
                self.reader._known = None
            self.reader.feed(piece)
        return self

    def request_begun(self) -> None:
        self.begun += 1

    def request_received(self, body: bytes, *, chunked: bool, is_last: bool) -> None:
        reader = self.reader
        head = reader.method, reader.url, reader.headers
        self.requests.append((*head, body, chunked, is_last))
        self.closing = is_last
        reader.reset()

    def refuse(self, error: StatusError) -> None:
        self.refusals.append(error.code)
        self.closing = True

    def refuse_http2(self) -> None:
        self.refuse(StatusError(505, "", ""))


def of_get(target: bytes, fields: bytes = FIELDS) -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n" + fields


def test_a_get_with_the_fields_of_the_one_before_shares_its_headers() -> None:
    reading = Reading().feed(of_get(b"/a"), of_get(b"/b?c=d"))
    first, second = reading.requests
    assert second[2] is first[2]
    assert (second[0], second[1]) == ("GET", b"/b?c=d")
    assert reading.begun == 2


@pytest.mark.parametrize(
    "request_bytes",
    [
        of_get(b"/b", FIELDS.replace(b"Bearer b", b"Bearer c")),
        of_get(b"/b", b"X: y\r\n" + FIELDS),
        b"GET  /b HTTP/1.1\r\n" + FIELDS,
        b"GET http://c/b HTTP/1.1\r\n" + FIELDS,
        b"GET /b HTTP/1.0\r\n" + FIELDS,
        b"PUT /b HTTP/1.1\r\nContent-Length: 0\r\n" + FIELDS,
        of_get(b"/b") + of_get(b"/c"),
        b"\r\n" + of_get(b"/b"),
        of_get(b"/b\x7f"),
    ],
)
def test_anything_else_is_parsed(request_bytes: bytes) -> None:
    seen = Reading().feed(of_get(b"/a"), request_bytes)
    parsed = Reading(forgets=True).feed(of_get(b"/a"), request_bytes)
    assert (seen.requests, seen.refusals) == (parsed.requests, parsed.refusals)


def test_the_end_of_a_request_that_came_in_parts_is_not_taken_for_a_whole_one() -> None:
    reading = Reading().feed(of_get(b"/a"), b"POST /b HTTP/1.1\r\nX: ", of_get(b"/c"))
    parsed = Reading(forgets=True)
    parsed.feed(of_get(b"/a"), b"POST /b HTTP/1.1\r\nX: ", of_get(b"/c"))
    assert [each[0] for each in reading.requests] == ["GET", "POST"]
    assert reading.requests == parsed.requests


@pytest.mark.parametrize(
    "others",
    [
        (of_get(b"/a")[:20], of_get(b"/a")[20:]),
        (of_get(b"/a") + of_get(b"/b"),),
        (of_get(b"/a") + of_get(b"/b")[:20], of_get(b"/b")[20:]),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        b"Authorization: Bearer c\r\nContent-Length: 0\r\n\r\n",
        b"Authorization: Bearer c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_no_request_gets_the_headers_of_another_one_before(
    others: tuple[bytes, ...], fields: bytes
) -> None:
    pieces = *others, of_get(b"/c", fields), of_get(b"/d", fields)
    seen, parsed = Reading().feed(*pieces), Reading(forgets=True).feed(*pieces)
    assert seen.requests[-1][2]["authorization"] == "Bearer c"
    assert seen.requests == parsed.requests


def test_a_body_is_not_taken_for_a_request() -> None:
    content = of_get(b"/c")
    post = b"POST /b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(content)
    reading = Reading().feed(of_get(b"/a"), post, content)
    assert [each[3] for each in reading.requests] == [b"", content]


def test_a_url_that_is_too_long_is_refused_although_its_fields_are_known() -> None:
    limits = ServerLimits(url_bytes=100)
    reading = Reading(limits).feed(of_get(b"/a"), of_get(b"/" + b"b" * 100))
    assert reading.refusals == [414]


PARTS = st.sampled_from(
    [
        b"GET /a HTTP/1.1\r\n",
        b"GET /b?c HTTP/1.1\r\n",
        b"POST /c HTTP/1.1\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: x\r\n",
        b"Expect: 100-continue\r\n",
        b"A: b\r\n",
        b"a: c\r\n",
        b"\r\n",
        b"0\r\n\r\n",
        b"xyz",
        FIELDS,
        of_get(b"/d"),
        of_get(b"/e"),
    ]
)


@given(st.lists(st.lists(PARTS, min_size=1, max_size=4).map(b"".join), max_size=12))
def test_a_reader_that_remembers_reads_the_same_as_one_that_parses(pieces: list[bytes]) -> None:
    seen, parsed = Reading().feed(*pieces), Reading(forgets=True).feed(*pieces)
    assert (seen.requests, seen.refusals) == (parsed.requests, parsed.refusals)
