"""The front end: shows the entries, and sends new ones to the back end. It keeps nothing itself."""

import html
import json
import os
import signal
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

STORE = os.environ["STORE"]
PAGE = """<h1>Guestbook</h1>
<form method="post"><input name="entry"><button>Sign</button></form>
<ul>{entries}
</ul>
"""


class Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with urllib.request.urlopen(STORE, timeout=5) as answer:
            entries = json.load(answer)
        shown = "".join(f"\n<li>{html.escape(entry)}" for entry in entries)
        self.answer(200, PAGE.format(entries=shown))

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        entry = json.dumps(form["entry"][0]).encode()
        urllib.request.urlopen(STORE, entry, timeout=5).close()
        self.answer(303, "", Location="/")

    def answer(self, status, page, **headers):
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page.encode())))
        self.send_header("X-Served-By", os.environ["HOSTNAME"])
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page.encode())


# The first process of a container ignores signals for which it has no handler.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
# The address of the pod: without network namespaces, several pods share the machine's.
ThreadingHTTPServer((os.environ["POD_IP"], 8000), Front).serve_forever()
