"""`kedge admission-webhook` on a cluster without kedge's extensions, in place of a stock one."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import eventually, ok

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.conftest import Terminal

LIMITS = """
apiVersion: kedge.dev/v1
kind: LimitRange
metadata: {name: shop}
spec:
  limits:
  - {type: Container, selector: {matchLabels: {tier: batch}}, max: {cpu: %s}, default: {cpu: "1"}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, tier: batch}}
    spec:
      containers:
      - name: main
        image: host
        env:
        - {name: CPU, valueFrom: {fieldRef: {fieldPath: resources.limits.cpu}}}
"""
DROPPED = """
apiVersion: v1
kind: Pod
metadata: {name: dropped}
spec:
  containers:
  - name: main
    image: host
    env: [{name: A, valueFrom: {containerFieldRef: {fieldPath: resources.limits.cpu}}}]
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def webhook(terminal: Terminal, state: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    flags = (f"--state={state}", f"--port={port}")
    command = [sys.executable, "-m", "kedge", "admission-webhook", *flags]
    with subprocess.Popen(
        command, env=terminal.environment, cwd=state.parent, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        try:
            assert "is ready at" in running.stderr.readline()
            yield running
        finally:
            running.kill()


def apply(terminal: Terminal, text: str) -> str:
    return ok(terminal.kubectl("apply", "-f", "-", input=text))


def run_pod(terminal: Terminal, cpu: str) -> str:
    """What the cluster says to a pod that wants so much."""
    resources = {"limits": {"cpu": cpu}}
    spec = {"containers": [{"name": "p", "image": "host", "resources": resources}]}
    overrides = json.dumps({"spec": spec})
    labels = "--labels=tier=batch"
    done = terminal.kubectl(
        "run", "p", "--image=host", labels, "--dry-run=server", f"--overrides={overrides}"
    )
    return done.stdout + done.stderr


@pytest.fixture
def cluster(terminal: Terminal) -> Terminal:
    ok(terminal.kedge("up", "--upstream-only", "--nodes", "0"))
    return terminal


def test_two_of_them_serve_while_the_api_server_comes_and_goes(
    cluster: Terminal, tmp_path: Path
) -> None:
    state, port = tmp_path / "webhook", free_port()
    url = f"--url=https://127.0.0.1:{port}"
    arguments = ("admission-webhook", f"--state={state}", "--print-manifests", url)
    manifests = ok(cluster.kedge(*arguments))
    apply(cluster, manifests)
    with ExitStack() as both:
        first = both.enter_context(webhook(cluster, state, port))
        # A second one, as with two replicas: both know the same.
        other = free_port()
        both.enter_context(webhook(cluster, state, other))
        apply(cluster, LIMITS % "2")
        eventually(lambda: "but limit is 3" in run_pod(cluster, "3"))
        assert "pod/p created" in run_pod(cluster, "2")

        os.kill(json.loads(ok(cluster.kedge("status", "-o=json")))["pid"], signal.SIGKILL)
        eventually(lambda: cluster.kubectl("get", "--raw", "/readyz").returncode == 0)
        apply(cluster, LIMITS % "4")
        eventually(lambda: "pod/p created" in run_pod(cluster, "3"))

        first.kill()
        first.wait()
        assert "failed calling webhook" in run_pod(cluster, "1")
        apply(cluster, manifests.replace(f":{port}/", f":{other}/"))
        eventually(lambda: "but limit is 5" in run_pod(cluster, "5"))


def test_workloads_pass_translated_and_pods_get_their_values(
    cluster: Terminal, tmp_path: Path
) -> None:
    state, port = tmp_path / "webhook", free_port()
    url = f"--url=https://127.0.0.1:{port}"
    apply(
        cluster,
        ok(cluster.kedge("admission-webhook", f"--state={state}", "--print-manifests", url)),
    )
    with webhook(cluster, state, port):
        apply(cluster, LIMITS % "2")
        eventually(lambda: "but limit is 3" in run_pod(cluster, "3"))
        # Twice, as GitOps tools do: a translated template is not a new one.
        apply(cluster, DEPLOYMENT)
        apply(cluster, DEPLOYMENT)
        pods = eventually(lambda: items(cluster, "pods"))
        key = "main.downward.kedge.dev/limits.cpu"
        assert [each["metadata"]["annotations"][key] for each in pods] == ["1024"]
        assert len(items(cluster, "replicasets")) == 1
        refused = cluster.kubectl("create", "--validate=ignore", "-f", "-", input=DROPPED)
        assert "drops containerFieldRef" in refused.stderr
        claim = ok(cluster.kubectl("get", "limitranges.kedge.dev", "shop", "-o", "json"))
        assert json.loads(claim)["spec"]["limits"][0]["selector"] == {
            "matchLabels": {"tier": "batch"}
        }


def items(terminal: Terminal, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ok(terminal.kubectl("get", kind, "-o", "json")))[
        "items"
    ]
    return found


def test_strangers_cannot_make_it_wait_or_grow(cluster: Terminal, tmp_path: Path) -> None:
    state, port = tmp_path / "webhook", free_port()
    url = f"--url=https://127.0.0.1:{port}"
    apply(
        cluster,
        ok(cluster.kedge("admission-webhook", f"--state={state}", "--print-manifests", url)),
    )
    with webhook(cluster, state, port):
        trust = ssl.create_default_context(cafile=state / "pki" / "ca.crt")
        # Neither peers that say nothing, nor bodies that never end, keep others from being served.
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        assert status_of(trust, port, b" " * (9 << 20)) == 413
        assert status_of(trust, port, b'{"a":' * 100_000) == 400
        assert "pod/p created" in run_pod(cluster, "2")
        for each in silent:
            each.close()


def status_of(trust: ssl.SSLContext, port: int, body: bytes) -> int:
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=20)
    try:
        connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()
