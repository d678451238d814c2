"""Load one Kubernetes API server and print a line of figures for each operation.

    apibench.py --server https://127.0.0.1:6443 --token TOKEN --pods 2000 --seconds 5 [--json FILE]

Works against any server that speaks the Kubernetes API, so that two of them can be given the same
work; `bench/api.py` does that turn by turn. Needs wrk, and no more of Python than comes with it.

Operations: create (POST of pods in a namespace that has a LimitRange with defaults; they differ in
their names only, like those of a ReplicaSet), distinct (the same with a variable of its own for
each pod), get, list (all pods of the namespace as JSON), table (the same list as kubectl asks for
it), patch (merge patches that contend for one pod) and watch (from the sending of a POST to the
event's arrival in the kernel for each of many watchers).
"""

import argparse
import http.client
import json
import secrets
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from watch_arrivals import TimedWatches

Figures = dict[str, float]

OPERATIONS = ("create", "distinct", "get", "list", "table", "patch", "watch")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
LISTERS = 4
PATCHERS = 8
WATCHED_EVENTS = 50
NO_WRK = "wrk is not installed, and it makes the load of this bench: apt install wrk"

LIMITS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "limits"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "min": {"cpu": "10m", "memory": "1Mi"},
                "max": {"cpu": "2", "memory": "1Gi"},
                "default": {"cpu": "500m", "memory": "128Mi"},
            },
            {"type": "Pod", "max": {"cpu": "4", "memory": "2Gi"}},
        ]
    },
}


def pod(name: str, namespace: str) -> dict[str, Any]:
    labels = {"app": "bench", "tier": "front"}
    annotations = {"team": "a", "note": "x" * 64}
    metadata = {"labels": labels, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {
            "nodeName": "",
            "schedulerName": "bench-none",
            "automountServiceAccountToken": False,
            "containers": [container("c0"), container("c1")],
        },
    }


def container(name: str) -> dict[str, Any]:
    own_name = {"fieldRef": {"fieldPath": "metadata.name"}}
    return {
        "name": name,
        "image": "busybox:1",
        "command": ["sh", "-c", "sleep 3600"],
        "env": [{"name": "A", "value": "1"}, {"name": "NAME", "valueFrom": own_name}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }


class Api:
    """One server and the token that it takes. Its certificate is not looked at."""

    def __init__(self, server: str, token: str) -> None:
        self.server = server.rstrip("/")
        self.token = token
        self._address = urlsplit(server)
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def connect(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(host, port, context=self._tls, timeout=60)
        return http.client.HTTPConnection(host, port, timeout=60)

    def headers(self, **others: str) -> dict[str, str]:
        given = {name.replace("_", "-"): value for name, value in others.items()}
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"} | given


class Caller:
    """One connection, for the few requests that are not part of the load."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._connection = api.connect()

    def get(self, path: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._call("GET", path, None, (200,)))
        return document

    def ensure(self, path: str, document: dict[str, Any]) -> None:
        """Create an object unless it is there."""
        self._call("POST", path, document, (200, 201, 409))

    def _call(self, method: str, path: str, body: Any, expected: Sequence[int]) -> bytes:
        data = None if body is None else json.dumps(body)
        headers = self._api.headers(Content_Type="application/json")
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status not in expected:
            sys.exit(f"{method} {path}: {answer.status} {content[:500].decode(errors='replace')}")
        return content


@dataclass(frozen=True)
class Load:
    """How much work there is."""

    pods: int = 1000
    seconds: int = 5
    conns: int = 32
    watchers: int = 100


class Bench:
    """The operations, on one namespace of one server."""

    def __init__(self, api: Api, load: Load, namespace: str = "bench") -> None:
        self.api = api
        self.load = load
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self._caller = Caller(api)
        self._operations: dict[str, Callable[[], Figures]] = {
            "create": self.create,
            "distinct": self.distinct,
            "get": self.get,
            "list": self.list,
            "table": self.table,
            "patch": self.patch,
            "watch": self.watch,
        }

    def run(self, operation: str) -> Figures:
        return self._operations[operation]()

    def prepare(self) -> None:
        """Make the namespace and what belongs into it."""
        home = f"/api/v1/namespaces/{self.namespace}"
        plain = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self._caller.ensure("/api/v1/namespaces", plain)
        self._caller.ensure(f"{home}/serviceaccounts", account)
        self._caller.ensure(f"{home}/limitranges", LIMITS)

    def fill(self) -> None:
        """See that there are as many pods as wanted, and the one that is read and patched."""
        page = self._caller.get(f"{self.path}?limit=1")
        have = len(page.get("items") or ()) + page["metadata"].get("remainingItemCount", 0)
        for number in range(have, self.load.pods - 1):
            self._caller.ensure(self.path, pod(f"fill-{number}", self.namespace))
        self._caller.ensure(self.path, pod("one", self.namespace))

    def create(self) -> Figures:
        return self._create(pod("@@", self.namespace))

    def distinct(self) -> Figures:
        document = pod("@@", self.namespace)
        document["spec"]["containers"][0]["env"][0]["value"] = "@@"
        return self._create(document)

    def _create(self, document: dict[str, Any]) -> Figures:
        """Create pods; their names take the place of `@@`."""
        prefix = f"b{secrets.token_hex(4)}-"
        return self._wrk(
            f"local n = 0; local body = [==[{json.dumps(document)}]==]",
            f"n = n + 1; return {self._request('POST', self.path, 'application/json')}"
            f' (body:gsub("@@", "{prefix}" .. n)))',
            self.load.conns,
        )

    def get(self) -> Figures:
        request = self._request("GET", f"{self.path}/one")
        return self._wrk("", f"return {request} nil)", self.load.conns)

    def list(self) -> Figures:
        figures = self._list("application/json")
        figures["MB_s"] = round(figures["bytes"] / self.load.seconds / 1e6, 1)
        return figures

    def table(self) -> Figures:
        return self._list(TABLE)

    def _list(self, accept: str) -> Figures:
        request = self._request("GET", f"{self.path}?resourceVersion=0", accept=accept)
        return self._wrk("", f"return {request} nil)", LISTERS)

    def patch(self) -> Figures:
        request = self._request("PATCH", f"{self.path}/one", "application/merge-patch+json")
        body = """'{"metadata":{"labels":{"n":"' .. n .. '"}}}'"""
        return self._wrk("local n = 0", f"n = n + 1; return {request} {body})", PATCHERS)

    def watch(self) -> Figures:
        version = self._caller.get(f"{self.path}?limit=1")["metadata"]["resourceVersion"]
        prefix = f"w{secrets.token_hex(4)}-"
        path = f"{self.path}?watch=1&resourceVersion={version}"
        watches = TimedWatches(self.api.server, path, self.api.headers(), prefix)
        watches.start(self.load.watchers)
        sent: dict[str, float] = {}
        for number in range(WATCHED_EVENTS):
            name = f"{prefix}{number}"
            sent[name] = time.time()
            self._caller.ensure(self.path, pod(name, self.namespace))
            time.sleep(0.05)
            watches.collect()
        time.sleep(1)
        watches.collect()
        return latencies(sent, watches.seen, WATCHED_EVENTS * self.load.watchers)

    def _request(
        self, method: str, path: str, content: str = "", accept: str = "application/json"
    ) -> str:
        """The Lua call that makes a request, up to its last argument, the body."""
        headers = {"Authorization": f"Bearer {self.api.token}", "Accept": accept}
        if content:
            headers["Content-Type"] = content
        pairs = ", ".join(f'["{name}"]="{value}"' for name, value in headers.items())
        return f'wrk.format("{method}", "{path}", {{{pairs}}},'

    def _wrk(self, before: str, request: str, connections: int) -> Figures:
        script = f"{before}\nrequest = function() {request} end\n{DONE}"
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
            file.write(script)
            file.flush()
            command = ["wrk", "-t1", f"-c{connections}", f"-d{self.load.seconds}s"]
            command += ["--timeout", "30s", "-s", file.name, self.api.server + self.path]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("BENCH "):
                figures: Figures = json.loads(line.removeprefix("BENCH "))
                return figures
        sys.exit(f"wrk gave no figures:\n{done.stdout}{done.stderr}")


DONE = """
done = function(s, l, r)
  io.write(string.format('BENCH {"rps": %.1f, "p50_ms": %.3f, "p99_ms": %.3f, "requests": %d, '
    .. '"bytes": %d, "errors": %d}\\n',
    s.requests / (s.duration / 1e6), l:percentile(50) / 1e3, l:percentile(99) / 1e3, s.requests,
    s.bytes,
    s.errors.status + s.errors.connect + s.errors.read + s.errors.write + s.errors.timeout))
end
"""


def latencies(
    sent: dict[str, float], seen: Mapping[tuple[int, str], float], wanted: int
) -> Figures:
    taken = sorted(at - sent[name] for (_, name), at in seen.items())
    if not taken:
        sys.exit("no watcher saw any event")
    return {
        "events": len(taken),
        "missed": wanted - len(taken),
        "p50_ms": round(taken[len(taken) // 2] * 1e3, 2),
        "p99_ms": round(taken[int(len(taken) * 0.99)] * 1e3, 2),
    }


def need_wrk() -> None:
    if shutil.which("wrk") is None:
        sys.exit(NO_WRK)


def chosen(text: str) -> tuple[str, ...]:
    """The operations of a comma-separated list, in the order in which they make sense."""
    wanted = text.split(",")
    if unknown := sorted({*wanted} - {*OPERATIONS}):
        raise argparse.ArgumentTypeError(f"no such operation: {unknown[0]}")
    return tuple(operation for operation in OPERATIONS if operation in wanted)


def add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pods", type=int, default=Load.pods, help="pods in the lists")
    parser.add_argument("--seconds", type=int, default=Load.seconds, help="time per operation")
    parser.add_argument("--conns", type=int, default=Load.conns, help="connections of wrk")
    parser.add_argument("--watchers", type=int, default=Load.watchers)
    parser.add_argument("--only", type=chosen, default=OPERATIONS, metavar="LIST")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")


def load_of(flags: argparse.Namespace) -> Load:
    return Load(flags.pods, flags.seconds, flags.conns, flags.watchers)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--namespace", default="bench")
    add_load(parser)
    flags = parser.parse_args()
    need_wrk()
    bench = Bench(Api(flags.server, flags.token), load_of(flags), flags.namespace)
    bench.prepare()
    results: dict[str, Figures] = {}
    for operation in flags.only:
        if operation not in ("create", "distinct"):
            bench.fill()
        results[operation] = bench.run(operation)
        print(operation, json.dumps(results[operation]), flush=True)
    if flags.json:
        flags.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
