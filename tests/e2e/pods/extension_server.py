"""An extension API server for tests that runs in a pod: flunders of the group in GROUP, kept in
memory, at HTTPS port 8443. It believes the user in the headers of the front proxy alone.
"""

import base64
import hashlib
import json
import os
import ssl
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

GROUP = os.environ["GROUP"]
VERSION = "v1alpha1"
ROOT = f"/apis/{GROUP}/{VERSION}"
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
RESOURCES = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {
            "name": "flunders",
            "singularName": "flunder",
            "namespaced": True,
            "kind": "Flunder",
            "shortNames": ["fl"],
            "verbs": ["create", "delete", "get", "list", "watch"],
        },
        {"name": "flunders/echo", "namespaced": True, "kind": "Flunder", "verbs": ["get"]},
    ],
}
flunders: dict = {}
changed = threading.Condition()
history: list = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do(self) -> None:
        self.content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        names = [pair[0][1] for pair in (self.connection.getpeercert() or {}).get("subject", ())]
        user = self.headers.get("X-Remote-User")
        if "front-proxy-client" not in names or not user:
            self.answer({"kind": "Status", "apiVersion": "v1", "code": 401}, 401)
            return
        path, _, query = self.path.partition("?")
        match path.removeprefix(ROOT).strip("/").split("/"):
            case ["openapi", "v3"]:
                url = f"/openapi/v3{ROOT}?hash=ABC123"
                self.answer({"paths": {ROOT[1:]: {"serverRelativeURL": url}}})
            case ["openapi", "v3", *_]:
                self.answer({"openapi": "3.0.0", "info": {"title": GROUP}, "paths": {}})
            case [""]:
                self.answer(RESOURCES)
            case ["namespaces", namespace, "flunders"]:
                self.collection(namespace, parse_qs(query))
            case ["namespaces", namespace, "flunders", name]:
                self.one(namespace, name)
            case ["namespaces", _, "flunders", _, "echo"]:
                self.echo()
            case ["namespaces", _, "flunders", "away", "moved"]:
                self.answer({}, 302, Location="https://elsewhere.example.com/")
            case ["namespaces", _, "flunders", "slow", "sleep"]:
                time.sleep(1000)
            case _:
                self.answer({"kind": "Status", "apiVersion": "v1", "code": 404}, 404)

    def collection(self, namespace: str, query: dict) -> None:
        if self.command == "POST":
            made = json.loads(self.content)
            name = made["metadata"]["name"]
            made["metadata"] |= {"namespace": namespace, "uid": name, "resourceVersion": "1"}
            flunders[namespace, name] = made
            self.note("ADDED", made)
            self.answer(made, 201)
        elif self.command == "DELETE":
            for key in [key for key in flunders if key[0] == namespace]:
                self.note("DELETED", flunders.pop(key))
            self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        elif query.get("watch"):
            self.watch()
        else:
            items = [each for key, each in flunders.items() if key[0] == namespace]
            kind = {"kind": "FlunderList", "apiVersion": f"{GROUP}/{VERSION}"}
            self.answer({**kind, "metadata": {"resourceVersion": "1"}, "items": items})

    def one(self, namespace: str, name: str) -> None:
        found = flunders.get((namespace, name))
        if found is None:
            status = {"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"}
            self.answer({**status, "status": "Failure", "message": f"no flunder {name}"}, 404)
        elif self.command == "DELETE":
            self.note("DELETED", flunders.pop((namespace, name)))
            self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        else:
            self.answer(found)

    def note(self, kind: str, flunder: dict) -> None:
        with changed:
            history.append({"type": kind, "object": flunder})
            changed.notify_all()

    def watch(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        seen = 0
        while True:
            with changed:
                while len(history) == seen:
                    changed.wait()
                news, seen = history[seen:], len(history)
            for each in news:
                self.wfile.write(json.dumps(each).encode() + b"\n")

    def echo(self) -> None:
        """The headers as they came; or, over a WebSocket, one message in capital letters."""
        if self.headers.get("Upgrade", "").lower() != "websocket":
            self.answer({"headers": [[k.lower(), v] for k, v in self.headers.items()]})
            return
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

    def answer(self, document: dict, status: int = 200, **headers: str) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
    setattr(Handler, f"do_{method}", Handler.do)


if __name__ == "__main__":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(os.environ["PEM"])
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=os.environ["PROXY_CA"])
    # Probes of the kubelet have no certificate.
    context.verify_mode = ssl.CERT_OPTIONAL
    server = ThreadingHTTPServer(("0.0.0.0", 8443), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
