"""Answers of an extension server that is hostile, on their way to clients."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GROUP = "hostile.example.com"
ROOT = f"/apis/{GROUP}/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
BYSTANDER_PATH = "/api/v1/namespaces/default"
UPGRADE = ("Connection: Upgrade", "Upgrade: x")
FLOODS = (
    "endless_body",
    "endless_small_chunks",
    "endless_chunk_extension",
    "endless_header",
    "endless_headers",
    "endless_interim_answers",
    "endless_trailer",
    "huge_length",
    "byte_after_byte",
    "silence",
)
CLIENTS = 4
"""Clients of each attack; half of them do not read."""
SECONDS = 4
LITTLE = 48 << 20
"""Bytes for the buffers of all of them."""
SHORT = 2.0
"""Longest wait of another client, on a busy machine."""


def call(target: Any, method: str, path: str, body: object = None) -> Any:
    tls = ssl.create_default_context(cadata=target.ca_pem)
    connection = http.client.HTTPSConnection(target.host, target.port, context=tls, timeout=30)
    headers = {"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(body) if body else None, headers)
        return json.loads(connection.getresponse().read())


@pytest.fixture(scope="module")
def extension(
    target: Any, tmp_path_factory: pytest.TempPathFactory, eventually: Callable[..., Any]
) -> Iterator[None]:
    """The hostile server, and the group that it answers for."""
    program = str(Path(__file__).parent / "hostile_extension.py")
    command = [sys.executable, program, str(tmp_path_factory.mktemp("keys"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            outside = {"type": "ExternalName", "externalName": "localhost"}
            service = {"metadata": {"name": "hostile"}, "spec": outside}
            call(target, "POST", "/api/v1/namespaces/default/services", service)
            spec = {
                "group": GROUP,
                "version": "v1",
                "service": {"namespace": "default", "name": "hostile", "port": port},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 10,
                "versionPriority": 10,
            }
            name = f"v1.{GROUP}"
            call(target, "POST", API_SERVICES, {"metadata": {"name": name}, "spec": spec})

            def is_available() -> bool:
                status = call(target, "GET", f"{API_SERVICES}/{name}").get("status", {})
                return any(each["status"] == "True" for each in status.get("conditions", ()))

            eventually(is_available)
            yield
        finally:
            server.terminate()


def asked(target: Any, attack: str, *fields: str) -> ssl.SSLSocket:
    """A connection on which the request was sent."""
    peer: ssl.SSLSocket = target.secure()
    peer.settimeout(30)
    peer.sendall(target.head(f"GET {ROOT}/{attack}", *fields, token=target.token))
    return peer


def test_answers_without_end_harm_nobody(target: Any, extension: None, attacks: Any) -> None:
    before = target.memory
    over = threading.Event()

    def client(attack: str, fields: tuple[str, ...], reads: bool) -> None:
        with contextlib.suppress(OSError), asked(target, attack, *fields) as peer:
            peer.settimeout(1)
            while reads and not over.is_set() and peer.recv(1 << 16):
                pass
            over.wait()

    requests = [(attack, ()) for attack in FLOODS] + [("endless_upgrade", UPGRADE)]
    clients = [
        threading.Thread(target=client, args=(*request, number % 2 == 0))
        for request in requests
        for number in range(CLIENTS)
    ]
    with attacks.bystander(target, BYSTANDER_PATH) as bystander:
        for each in clients:
            each.start()
        over.wait(SECONDS)
        over.set()
        for each in clients:
            each.join()
    assert bystander.failures == []
    assert max(bystander.kept) < SHORT
    assert target.memory - before < LITTLE


@pytest.mark.parametrize(
    "attack",
    [
        *("endless_header", "endless_headers", "endless_interim_answers", "impossible_length"),
        *("two_lengths", "no_http", "endless_upgrade"),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_the_server(
    target: Any, extension: None, attacks: Any, attack: str
) -> None:
    with asked(target, attack) as peer:
        assert attacks.read_head(peer)[0] == 503


def test_an_answer_that_ends_early_does_not_look_complete(
    target: Any, extension: None, attacks: Any
) -> None:
    with asked(target, "early_end") as peer:
        status, fields, body = attacks.read_head(peer)
        rest = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    assert (status, fields["content-length"], body + rest) == (200, "1000", b"{}")
