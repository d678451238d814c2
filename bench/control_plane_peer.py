"""The control plane that controller-runtime's envtest starts for a test: etcd and kube-apiserver.

`--assets` names the directory with both programs, as `KUBEBUILDER_ASSETS` does.
"""

import contextlib
import os
import secrets
import socket
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, sleep
from typing import NamedTuple

READY_SECONDS = 120
PAUSE = 0.02


class PeerStart(NamedTuple):
    """A control plane that answers."""

    seconds: float
    processes: dict[str, int]


@contextlib.contextmanager
def started(assets: Path) -> Iterator[PeerStart]:
    """Start both programs with envtest's flags; yields when /readyz answers."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        here = Path(place)
        began = perf_counter()
        client, peer, port = free_port(), free_port(), free_port()
        etcd = stack.enter_context(running(etcd_command(assets, here, client, peer)))
        server = stack.enter_context(running(server_command(assets, here, client, port)))
        wait_until_ready(port)
        yield PeerStart(perf_counter() - began, {"etcd": etcd.pid, "kube-apiserver": server.pid})


def etcd_command(assets: Path, here: Path, client: int, peer: int) -> list[str]:
    return [
        str(assets / "etcd"),
        f"--data-dir={here / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        "--log-level=error",
    ]


def server_command(assets: Path, here: Path, client: int, port: int) -> list[str]:
    key = here / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens = here / "tokens.csv"
    tokens.write_text(f"{secrets.token_hex(8)},admin,1,system:masters\n")
    return [
        str(assets / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{client}",
        f"--cert-dir={here / 'certificates'}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--token-auth-file={tokens}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://localhost",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
    ]


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=dict(os.environ)) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_ready(port: int) -> None:
    context = ssl._create_unverified_context()
    until = perf_counter() + READY_SECONDS
    while perf_counter() < until:
        try:
            urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=context).close()
            return
        except OSError:
            sleep(PAUSE)
    raise TimeoutError("kube-apiserver was not ready in time")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
