"""An adapter of metrics for tests that runs in a pod, at HTTPS port 8443: the value of the metric
`queue-30` is 30, of each pod, of any object and outside of the cluster.
"""

import json
import os
import ssl
import tempfile
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CUSTOM = "custom.metrics.k8s.io/v1beta2"
EXTERNAL = "external.metrics.k8s.io/v1beta1"
PODS = os.environ["PODS"].split(",")


def value_of(metric: str, name: str = "") -> dict:
    described = {"kind": "Pod", "name": name}
    return {"value": metric.rpartition("-")[2], "describedObject": described}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        names = [pair[0][1] for pair in (self.connection.getpeercert() or {}).get("subject", ())]
        if "front-proxy-client" not in names:
            self.answer(401, {"kind": "Status", "apiVersion": "v1", "code": 401})
            return
        path, _, query = self.path.partition("?")
        asked = urllib.parse.parse_qs(query)
        match path.removeprefix("/apis/").split("/"):
            case [group, version]:
                listed = {"kind": "APIResourceList", "apiVersion": "v1", "resources": []}
                self.answer(200, {**listed, "groupVersion": f"{group}/{version}"})
            case [_, _, "namespaces", _, "pods", "*", metric] if asked["labelSelector"]:
                self.answer(200, {"items": [value_of(metric, name) for name in PODS]})
            case [_, _, "namespaces", _, "services", _, metric]:
                self.answer(200, {"items": [value_of(metric)]})
            case ["external.metrics.k8s.io", _, "namespaces", _, metric]:
                self.answer(200, {"items": [value_of(metric)]})
            case _:
                self.answer(404, {"kind": "Status", "apiVersion": "v1", "code": 404})

    def answer(self, status: int, document: dict) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(os.environ["PEM"])
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=os.environ["PROXY_CA"])
    context.verify_mode = ssl.CERT_OPTIONAL
    server = ThreadingHTTPServer(("0.0.0.0", 8443), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
