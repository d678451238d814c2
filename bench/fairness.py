"""How much a flood of one tenant slows down another: API priority and fairness at work.

A temporary cluster without nodes, and two service accounts. The quiet one sends a request every
twenty milliseconds: gets, lists of its own namespace, creates and deletes. The other one floods the
server from many connections as fast as it can, with one sort of request per round. The bar: with
the flood, the quiet tenant's p50 and p99 are at most twice those without. For the figures without,
the same flood goes to another cluster on the same machine, so that the processors are as busy. Both
alternate in short rounds. Needs wrk.

    bench/fairness.py [--seconds N] [--connections N] [--objects N]
"""

import argparse
import http.client
import json
import math
import ssl
import subprocess
import sys
import tempfile
import time
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

from apibench import need_wrk
from cluster import Cluster, home

BAR_RATIO = 2.0
ROUNDS = 3
PERIOD_SECONDS = 0.02
FLOODS = {
    "gets": 'wrk.format("GET", "/api/v1/namespaces/flood/configmaps/m0", headers)',
    "lists": 'wrk.format("GET", "/api/v1/namespaces/flood/configmaps", headers)',
    "creates": 'wrk.format("POST", "/api/v1/namespaces/flood/secrets", headers, body())',
    "patches": 'wrk.format("PATCH", "/api/v1/namespaces/flood/configmaps/m0", merge, patch())',
    "refusals": 'wrk.format("GET", "/api/v1/namespaces/quiet/secrets", headers)',
}
SCRIPT = """
local headers = {["Authorization"] = "Bearer TOKEN", ["Content-Type"] = "application/json"}
local merge = {["Authorization"] = "Bearer TOKEN"}
merge["Content-Type"] = "application/merge-patch+json"
local n = 0
local function body()
  local text = string.rep("x", 500)
  return '{"metadata": {"generateName": "s-"}, "stringData": {"a": "' .. text .. '"}}'
end
local function patch()
  n = n + 1
  return '{"data": {"n": "' .. n .. '"}}'
end
request = function() return REQUEST end
"""


class Tenant:
    """One connection with the token of a service account."""

    def __init__(self, url: str, token: str) -> None:
        address, tls = urlsplit(url), ssl._create_unverified_context()
        host, port = address.hostname or "", address.port
        self._connection = http.client.HTTPSConnection(host, port, context=tls, timeout=60)
        self.token = token

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else {}


def account(admin: Tenant, name: str, url: str) -> Tenant:
    """Make a namespace and a service account that may do everything in it."""
    admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    inside = f"/api/v1/namespaces/{name}"
    admin.call("POST", f"{inside}/serviceaccounts", {"metadata": {"name": "tenant"}})
    rbac = "rbac.authorization.k8s.io"
    bound = {
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": name}],
    }
    admin.call("POST", f"/apis/{rbac}/v1/namespaces/{name}/rolebindings", bound)
    _, made = admin.call("POST", f"{inside}/serviceaccounts/tenant/token", {"spec": {}})
    return Tenant(url, made["status"]["token"])


def config_map(name: str, size: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"a": "x" * size}}


def quiet_requests(number: int) -> list[tuple[str, str, Any]]:
    """Return one round of the quiet tenant."""
    maps = "/api/v1/namespaces/quiet/configmaps"
    name = f"c{number}"
    return [
        ("GET", f"{maps}/m0", None),
        ("GET", maps, None),
        ("POST", maps, config_map(name, 200)),
        ("DELETE", f"{maps}/{name}", None),
    ]


def latencies(tenant: Tenant, seconds: float, offset: int) -> list[float]:
    """Return the milliseconds of each request; one that is refused ends the benchmark."""
    taken: list[float] = []
    start = time.perf_counter()
    number = offset
    while time.perf_counter() - start < seconds:
        number += 1
        for method, path, body in quiet_requests(number):
            begun = time.perf_counter()
            status, document = tenant.call(method, path, body)
            taken.append((time.perf_counter() - begun) * 1e3)
            if status >= 300:
                sys.exit(f"the quiet tenant was refused: {status} {document}")
            time.sleep(PERIOD_SECONDS)
    return taken


def percentiles(values: list[float]) -> tuple[float, float]:
    cut = quantiles(values, n=100)
    return cut[49], cut[98]


def flood(cluster: Cluster, tenant: Tenant, request: str, options: argparse.Namespace) -> Any:
    script = SCRIPT.replace("TOKEN", tenant.token).replace("REQUEST", request)
    with tempfile.NamedTemporaryFile("w", suffix=".lua", delete=False) as file:
        file.write(script)
    seconds = math.ceil(options.seconds / ROUNDS) + 1
    command = [
        "nice",
        "-n19",
        "wrk",
        "-t1",
        f"-c{options.connections}",
        f"-d{seconds}s",
        "--timeout=60s",
    ]
    command += ["-s", file.name, cluster.url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main() -> None:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--seconds", type=int, default=10, help="of each round (%(default)s)")
    flags.add_argument("--connections", type=int, default=100, help="of the flood (%(default)s)")
    flags.add_argument("--objects", type=int, default=500, help="that it lists (%(default)s)")
    flags.add_argument("--only", default="", help="one of " + ", ".join(FLOODS))
    options = flags.parse_args()
    need_wrk()
    with home() as place, home() as elsewhere:
        for each in (place, elsewhere):
            each.up("sqlite")
        missed = measure([place.running(), elsewhere.running()], options)
    sys.exit(1 if missed else 0)


def prepared(cluster: Cluster, objects: int) -> tuple[Tenant, Tenant]:
    """Return the quiet tenant and the other one, with their objects."""
    admin = Tenant(cluster.url, cluster.token)
    quiet, loud = (account(admin, name, cluster.url) for name in ("quiet", "flood"))
    for number in range(20):
        quiet.call("POST", "/api/v1/namespaces/quiet/configmaps", config_map(f"m{number}", 200))
    for number in range(objects):
        loud.call("POST", "/api/v1/namespaces/flood/configmaps", config_map(f"m{number}", 1000))
    latencies(quiet, 1, 0)
    return quiet, loud


def measure(clusters: list[Cluster], options: argparse.Namespace) -> list[str]:
    tenants = [prepared(cluster, options.objects) for cluster in clusters]
    quiet = tenants[0][0]
    missed, number = [], 0
    print(f"{'flood':<10}{'quiet p50':>10}{'p99':>8}{'flood p50':>11}{'p99':>8}  ratios (bar 2)")
    for name, request in FLOODS.items():
        if options.only not in ("", name):
            continue
        taken: list[list[float]] = [[], []]
        rates: list[float] = []
        for turn in range(2 * ROUNDS):
            where = turn % 2
            process = flood(clusters[where], tenants[where][1], request, options)
            time.sleep(1)
            number += 10_000
            taken[where] += latencies(quiet, options.seconds / ROUNDS, number)
            told = process.communicate()[0]
            rate = next(line.split()[1] for line in told.splitlines() if "Requests/sec" in line)
            if not where:
                rates.append(float(rate))
        with_flood, alone = map(percentiles, taken)
        ratios = [each / base for each, base in zip(with_flood, alone, strict=True)]
        figures = (*alone, *with_flood)
        print("{:<10}{:>10.2f}{:>8.2f}{:>11.2f}{:>8.2f}".format(name, *figures), end="")
        mean = sum(rates) / len(rates)
        print(f"  {ratios[0]:.1f} {ratios[1]:.1f}; flood {mean:.0f} requests/s", flush=True)
        if max(ratios) > BAR_RATIO:
            missed.append(name)
    return missed


if __name__ == "__main__":
    main()
