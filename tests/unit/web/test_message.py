"""HTTP as the rooms of the server know it."""

import pytest

from kedge.web.exchange import OutgoingRequest
from kedge.web.message import header_line, warning_headers


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0"])
def test_a_value_cannot_begin_another_header(end: str) -> None:
    line = header_line("Warning", f"a{end}Set-Cookie: b")
    assert line == f"Warning: a{' ' * len(end)}Set-Cookie: b\r\n"


def test_a_header_of_a_request_that_is_passed_on_cannot_begin_another() -> None:
    asking = OutgoingRequest("GET", "/x", [("a", "b\r\nc: d")])
    assert asking.encoded("host") == b"GET /x HTTP/1.1\r\nhost: host\r\na: b  c: d\r\n\r\n"


def test_a_warning_is_sent_as_utf_8() -> None:
    ((name, value),) = warning_headers(['unknown field "größe"'])
    assert header_line(name, value).encode("latin-1") == (
        'Warning: 299 - "unknown field \\"größe\\""\r\n'.encode()
    )
