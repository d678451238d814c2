"""Servers for tests that run in a pod: gRPC on port 8001, HTTP/2 without TLS on 8002, datagrams on
8003 and, if the kernel has it, SCTP on 8004. Each says who it is and what it was told."""

import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded

WHO = os.environ["WHO"].encode()
SCTP = 132


class Echo(grpc.GenericRpcHandler):
    """Answers `/echo.Echo/Say` once, and `/echo.Echo/Count` for each letter."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method == "/echo.Echo/Say":
            return grpc.unary_unary_rpc_method_handler(lambda told, _: WHO + b" " + told)
        if details.method == "/echo.Echo/Count":
            return grpc.unary_stream_rpc_method_handler(self.count)
        return None

    def count(self, told: bytes, _: object) -> Iterator[bytes]:
        for letter in told.decode():
            yield letter.encode()


class Http2(socketserver.BaseRequestHandler):
    """Answers each request of a connection with its path."""

    def handle(self) -> None:
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        self.request.sendall(connection.data_to_send())
        paths: dict[int, bytes] = {}
        while data := self.request.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    paths[event.stream_id] = dict(event.headers)[b":path"]
                elif isinstance(event, StreamEnded):
                    connection.send_headers(event.stream_id, [(":status", "200")])
                    body = WHO + b" " + paths.pop(event.stream_id)
                    connection.send_data(event.stream_id, body, end_stream=True)
            self.request.sendall(connection.data_to_send())


class Datagrams(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        told, channel = self.request
        channel.sendto(WHO + b" " + told, self.client_address)


def serve_sctp() -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, SCTP)
    listener.bind(("0.0.0.0", 8004))
    listener.listen()
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(WHO + b" " + connection.recv(100))


if __name__ == "__main__":
    if os.environ.get("SCTP"):
        threading.Thread(target=serve_sctp, daemon=True).start()
    datagrams = socketserver.ThreadingUDPServer(("0.0.0.0", 8003), Datagrams)
    threading.Thread(target=datagrams.serve_forever, daemon=True).start()
    http2 = socketserver.ThreadingTCPServer(("0.0.0.0", 8002), Http2)
    threading.Thread(target=http2.serve_forever, daemon=True).start()
    server = grpc.server(ThreadPoolExecutor(8), handlers=[Echo()])
    server.add_insecure_port("0.0.0.0:8001")
    server.start()
    server.wait_for_termination()
