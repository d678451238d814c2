"""A cluster that people lean on: half-open connections, endless bodies, floods of requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from kedge.client.http import HttpTransport
from kedge.client.transport import Call

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 20.0
"""Seconds that anything may take before it counts as not happening."""
HALF_OPEN = 300
GIGABYTE = 1 << 30
LITTLE = 48 << 20
"""Bytes by which a server may grow that refuses what it is sent."""
WEBHOOK_SECONDS = 3


class Leaned(NamedTuple):
    """A cluster of this module's own: what is done to it here is not for others to bear."""

    state: Path
    pid: int
    url: str
    token: str
    ca_pem: str

    def connect(self) -> ssl.SSLSocket:
        parts = urlsplit(self.url)
        raw = socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE)
        context = ssl.create_default_context(cadata=self.ca_pem)
        return context.wrap_socket(raw, server_hostname=parts.hostname)

    def head(self, request_line: str, *fields: str) -> bytes:
        lines = [f"{request_line} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.token}"]
        return "\r\n".join([*lines, *fields, "", ""]).encode()

    def transport(self) -> HttpTransport:
        return HttpTransport(self.url, ca_pem=self.ca_pem.encode(), token=self.token)

    @property
    def memory(self) -> int:
        """Bytes of memory that the server has ever held at once."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024


def kedge(home: Path, *arguments: str) -> str:
    environment = os.environ | {"HOME": str(home), "XDG_STATE_HOME": str(home / "states")}
    command = [sys.executable, "-m", "kedge", *arguments]
    return subprocess.check_output(command, env=environment, cwd=home, text=True, timeout=60)


@pytest.fixture(scope="module")
def leaned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leaned]:
    home = tmp_path_factory.mktemp("leaned")
    state, kubeconfig = home / "state", home / "kubeconfig"
    which = (f"--name=leaned-{os.getpid()}", f"--state={state}")
    kedge(home, "up", *which, "--port=0", f"--kubeconfig={kubeconfig}")
    try:
        pid = json.loads(kedge(home, "status", *which, "-o=json"))["pid"]
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        ca_pem = base64.b64decode(cluster["certificate-authority-data"]).decode()
        yield Leaned(state, pid, cluster["server"], user["token"], ca_pem)
    finally:
        kedge(home, "down", *which, "--purge")


def answer(peer: ssl.SSLSocket) -> tuple[int, dict[str, str], bytes]:
    """Status, header and body of an answer after which the server closes."""
    data = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while piece := peer.recv(1 << 16):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), fields, body


async def ask(transport: HttpTransport, method: str, path: str, body: Any = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    return await transport.send(Call(method, path, "", headers, data))


def test_half_open_requests_do_not_keep_others_waiting(leaned: Leaned) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(HALF_OPEN):
            peer = stack.enter_context(leaned.connect())
            peer.sendall(leaned.head("GET /api/v1/namespaces")[:-2] + b"X-Slow: ")

        async def list_many() -> list[int]:
            transport = leaned.transport()
            try:
                replies = [await ask(transport, "GET", "/api/v1/namespaces") for _ in range(50)]
            finally:
                await transport.close()
            return [reply.status for reply in replies]

        start = time.perf_counter()
        assert asyncio.run(list_many()) == [200] * 50
        assert time.perf_counter() - start < 5


def test_gigabyte_is_refused_before_it_is_sent(leaned: Leaned) -> None:
    before = leaned.memory
    head = leaned.head(
        "POST /api/v1/namespaces/default/configmaps",
        "Content-Type: application/json",
        f"Content-Length: {GIGABYTE}",
    )
    with leaned.connect() as peer:
        peer.sendall(head)
        status, _, body = answer(peer)
    assert status == 413
    assert json.loads(body)["reason"] == "RequestEntityTooLarge"
    assert leaned.memory - before < LITTLE


def test_gigabyte_of_unknown_length_is_cut_off(leaned: Leaned) -> None:
    before = leaned.memory
    head = leaned.head(
        "POST /api/v1/namespaces/default/configmaps",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    )
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    sent = 0
    with leaned.connect() as peer:
        peer.sendall(head)
        with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
            while sent < GIGABYTE:
                peer.sendall(chunk)
                sent += len(chunk)
    assert sent < GIGABYTE // 4
    assert leaned.memory - before < LITTLE


def test_endless_url_is_refused(leaned: Leaned) -> None:
    with leaned.connect() as peer:
        peer.sendall(leaned.head(f"GET /api/v1/pods?labelSelector={'a' * 40_000}"))
        status, _, _ = answer(peer)
    assert status == 414


def hanging_webhook(url: str) -> dict[str, Any]:
    """One that keeps every config map of one namespace waiting, then lets it pass."""
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    return {
        "metadata": {"name": "hanging"},
        "webhooks": [
            {
                "name": "hanging.kedge.test",
                "clientConfig": {"url": url},
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "flood"}},
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": WEBHOOK_SECONDS,
            }
        ],
    }


CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
FLOOD = "/api/v1/namespaces/flood/configmaps"
CALM = "/api/v1/namespaces/default/configmaps"


def test_flood_is_answered_with_429_while_reads_and_watches_go_on(leaned: Leaned) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as silence:
        url = f"https://127.0.0.1:{silence.getsockname()[1]}/"
        statuses, retries, delays, seen = asyncio.run(_flood(leaned, url))
    assert set(statuses) == {201, 429}
    assert 200 <= statuses[201] <= 300
    assert retries == {"1"}
    assert statistics.median(delays) < 0.5
    assert seen["object"]["metadata"]["name"] == "after"


async def _flood(
    leaned: Leaned, url: str
) -> tuple[Counter[int], set[str], list[float], dict[str, Any]]:
    # One client alone sends no flood: it keeps the number of its requests under way small.
    others, flooding = leaned.transport(), [leaned.transport() for _ in range(40)]
    try:
        await ask(others, "POST", "/api/v1/namespaces", {"metadata": {"name": "flood"}})
        made = await ask(others, "POST", CONFIGURATIONS, hanging_webhook(url))
        assert made.status == 201, made.body
        revision = json.loads((await ask(others, "GET", CALM)).body)["metadata"]["resourceVersion"]
        watch = Call("GET", CALM, f"watch=1&resourceVersion={revision}", {})
        async with others.stream(watch) as stream, asyncio.timeout(PATIENCE):
            body = {"metadata": {"generateName": "f-"}}
            async with asyncio.TaskGroup() as tasks:
                flood = [
                    tasks.create_task(ask(client, "POST", FLOOD, body))
                    for client in flooding
                    for _ in range(10)
                ]
                delays = []
                for _ in range(20):
                    start = time.perf_counter()
                    assert (await ask(others, "GET", CALM)).status == 200
                    delays.append(time.perf_counter() - start)
            replies = [task.result() for task in flood]
            await ask(others, "POST", CALM, {"metadata": {"name": "after"}})
            event = json.loads((await anext(aiter(stream.pieces))).splitlines()[0])
        refused = [reply for reply in replies if reply.status == 429]
        assert json.loads(refused[0].body)["reason"] == "TooManyRequests"
        retries = {reply.headers["retry-after"] for reply in refused}
        return Counter(reply.status for reply in replies), retries, delays, event
    finally:
        await ask(others, "DELETE", f"{CONFIGURATIONS}/hanging")
        for client in (others, *flooding):
            await client.close()


def wanted_mode(path: Path) -> int:
    if path.is_dir():
        return 0o700
    # Certificates are no secret, and nobody else gets into the directory anyway.
    return 0o644 if path.suffix == ".crt" else 0o600


def test_only_the_owner_can_read_what_a_cluster_keeps(leaned: Leaned) -> None:
    # Pods and plugins leave what they like in a node's own directory: nobody else gets in there.
    below = list(leaned.state.glob("nodes/*"))
    paths = [leaned.state, *leaned.state.rglob("*")]
    paths = [path for path in paths if not any(node in path.parents for node in below)]
    assert {"ca.key", "token", "store.db", "node-1"} <= {path.name for path in paths}
    modes = {path: path.lstat().st_mode & 0o777 for path in paths}
    wrong = {str(path): oct(mode) for path, mode in modes.items() if mode != wanted_mode(path)}
    assert wrong == {}
