"""The back end: keeps entries in a file, one JSON text per line."""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

FILE = Path(os.environ["ENTRIES"])
writing = Lock()


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        lines = FILE.read_text().splitlines() if FILE.exists() else []
        self.answer(200, f"[{','.join(lines)}]".encode())

    def do_POST(self):
        entry = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with writing, FILE.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        self.answer(201, b"{}")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


# The first process of a container ignores signals for which it has no handler.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
ThreadingHTTPServer(("", 6000), Store).serve_forever()
