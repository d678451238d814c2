"""What clients that speak HTTP/2 are told."""

from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated

from kedge.web.http2_refusal import HTTP2_REFUSAL


def test_an_http2_client_learns_the_reason() -> None:
    client = H2Connection()
    client.initiate_connection()
    events = client.receive_data(HTTP2_REFUSAL)
    [ended] = [each for each in events if isinstance(each, ConnectionTerminated)]
    assert ended.error_code == ErrorCodes.HTTP_1_1_REQUIRED
    assert ended.last_stream_id == 0
    assert ended.additional_data == b"this server speaks HTTP/1.1 only, not HTTP/2 or gRPC"
