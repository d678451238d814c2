"""The database: serves the entries, which SQLite keeps in the file DATABASE."""

import json
import os
import signal
import sqlite3
import sys
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def database():
    """Each request is a thread, and has a connection of its own."""
    return closing(sqlite3.connect(os.environ["DATABASE"], timeout=10, isolation_level=None))


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with database() as entries:
            found = [text for (text,) in entries.execute("select text from entries order by rowid")]
        self.answer(200, found)

    def do_POST(self):
        entry = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with database() as entries:
            # SQLite has written it to the disk when this returns.
            entries.execute("insert into entries values (?)", (entry,))
        self.answer(201, {})

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


# The first process of a container ignores signals for which it has no handler.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with database() as entries:
    entries.execute("create table if not exists entries (text text not null)")
ThreadingHTTPServer((os.environ["POD_IP"], 6000), Store).serve_forever()
