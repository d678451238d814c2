"""A web server for tests that runs in a pod: HTTP on port 8080, HTTPS on 8443 if it has a
certificate. It says who it is and how it was asked, sends pages, redirects and an endless stream,
repeats what it hears on a WebSocket, and answers AdmissionReviews.
"""

import base64
import gzip
import hashlib
import json
import os
import ssl
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WHO = os.environ.get("WHO", "")
PAGE = b'<html><a href="/rewriteme">test</a></html>'
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.echo()
        elif path == "/page":
            self.answer(PAGE, "text/html")
        elif path == "/packed":
            self.answer(gzip.compress(PAGE), "text/html", {"Content-Encoding": "gzip"})
        elif path == "/moved":
            self.answer(b"", "text/plain", {"Location": "/elsewhere"}, 302)
        elif path == "/large":
            self.answer(b"x" * (5 << 20), "application/octet-stream")
        elif path == "/endless":
            self.stream()
        elif path == "/bomb":
            body = gzip.compress(b"<a href=/x>" * (6 << 20), 1)
            self.answer(body, "text/html", {"Content-Encoding": "gzip"})
        elif path == "/review":
            self.review(json.loads(body))
        else:
            asked = {name.lower(): value for name, value in self.headers.items()}
            told = {"who": WHO, "method": self.command, "path": self.path, "body": body.decode()}
            self.answer(json.dumps({**told, "headers": asked}).encode(), "application/json")

    def answer(
        self, body: bytes, kind: str, headers: dict | None = None, status: int = 200
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "X-Who": WHO, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while True:
            self.wfile.write(b"x" * 65536)

    def review(self, asked: dict) -> None:
        request = asked["request"]
        verdict = {"uid": request["uid"], "allowed": False, "status": {"message": f"{WHO} says no"}}
        self.answer(json.dumps({**asked, "response": verdict}).encode(), "application/json")

    def echo(self) -> None:
        """One message, back in capital letters; then the end."""
        key = self.headers["Sec-WebSocket-Key"] + GUID
        accepted = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "websocket")
        self.send_header("Sec-WebSocket-Accept", accepted)
        self.end_headers()
        _, size = self.rfile.read(2)
        mask, masked = self.rfile.read(4), self.rfile.read(size & 127)
        heard = bytes(sign ^ mask[at % 4] for at, sign in enumerate(masked)).upper()
        self.wfile.write(bytes([0x81, len(heard)]) + heard)
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        pass


for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
    setattr(Handler, f"do_{method}", Handler.do)


def serve(port: int, tls: ssl.SSLContext | None = None) -> None:
    server = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    if pem := os.environ.get("PEM"):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(pem)
            file.flush()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file.name)
        threading.Thread(target=serve, args=(8443, context), daemon=True).start()
    serve(8080)
