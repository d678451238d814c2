"""Real API servers for tests: each in a directory of its own, with the same keys."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kedge.client.http import HttpTransport
from kedge.testing.etcd_process import free_port

START_SECONDS: Final = 60.0


class ApiServerProcess:
    """One `kedge server`, which can be killed, stopped and started again."""

    def __init__(
        self, directory: Path, store: str, *, host: str = "127.0.0.1", program: Sequence[str] = ()
    ) -> None:
        """`program` starts the server somewhere else."""
        self.directory = directory
        self.host, self.port = host, free_port()
        self._store = store
        self._program = program
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        """Start without waiting."""
        (self.directory / "server.json").unlink(missing_ok=True)
        with (self.directory.with_suffix(".log")).open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self._program,
                    *(sys.executable, "-P", "-m", "kedge", "server", "--config="),
                    f"--state={self.directory}",
                    f"--name={self.directory.name}",
                    f"--host={self.host}",
                    f"--port={self.port}",
                    f"--store={self._store}",
                    "--admission-control=NamespaceLifecycle,ResourceQuota",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "KEDGE_HOME": str(self.directory.parent)},
            )

    def is_ready(self) -> bool:
        return (self.directory / "server.json").exists()

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.perf_counter() + START_SECONDS
        while not self.is_ready():
            ended = self.process is None or self.process.poll() is not None
            if ended or time.perf_counter() > deadline:
                log = self.directory.with_suffix(".log").read_text()
                raise RuntimeError(f"the server did not start: {log[-2000:]}")
            time.sleep(0.02)  # noqa: TID251 - a process is waited for in real time

    def copy_keys(self, first: "ApiServerProcess") -> None:
        """Get the keys of another server."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        shutil.copytree(first.directory / "pki", self.directory / "pki")
        shutil.copy2(first.directory / "token", self.directory / "token")

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it, and wait for its end."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def transport(self) -> HttpTransport:
        """Return a connection of the administrator."""
        token = (self.directory / "token").read_text().strip()
        trust = ssl.create_default_context(cafile=str(self.directory / "pki" / "ca.crt"))
        return HttpTransport(f"https://{self.host}:{self.port}", tls=trust, token=token)

    def url(self) -> str:
        return str(json.loads((self.directory / "server.json").read_bytes())["url"])


def three_servers(
    directory: Path, store: str, places: Sequence[tuple[str, Sequence[str]]]
) -> list[ApiServerProcess]:
    """Start servers at these addresses, by these programs."""
    servers = [
        ApiServerProcess(directory / f"s{number}", store, host=host, program=program)
        for number, (host, program) in enumerate(places, 1)
    ]
    first, *others = servers
    first.directory.mkdir(mode=0o700)
    first.spawn()
    try:
        first.wait()
        for server in others:
            server.copy_keys(first)
            server.spawn()
        for server in others:
            server.wait()
    except BaseException:
        for server in servers:
            server.end()
        raise
    return servers
