"""Hostile requests against a real server: none breaks it, stalls it or fills its memory."""

import asyncio
import base64
import itertools
import os
import shlex
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kedge.testing.hostile import HostileRequest, requests
from kedge.testing.raw_http import RawConnection

SEED = int(os.environ.get("KEDGE_FUZZ_SEED", 1))
COUNT = int(os.environ.get("KEDGE_FUZZ_REQUESTS", 15_000))
AT_ONCE = 16
MOST_MEGABYTES = 400
LONGEST_PAUSE_SECONDS = 0.1
NOT_OURS = (
    "no preferred addresses found",
    "does not contain declared merge key",
    "list element types are not identical",
)
"""Answers with a status of 500 that kube-apiserver gives too."""


class FuzzedServer:
    """A server with all controllers, without a node."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._which = ("--name=fuzz", f"--state={home / 'state'}")
        kubeconfig = home / "kubeconfig"
        self._kedge("up", *self._which, "--port=0", "--nodes=0", f"--kubeconfig={kubeconfig}")
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.url: str = cluster["server"]
        self.token: str = user["token"]
        self.tls = ssl.create_default_context(cadata=authority)

    def _kedge(self, *words: str) -> str:
        environment = {**os.environ, "HOME": str(self._home), "XDG_STATE_HOME": str(self._home)}
        done = subprocess.run(
            [sys.executable, "-m", "kedge", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def connection(self) -> RawConnection:
        return RawConnection(self.url, self.tls, self.token)

    def process(self) -> int:
        words = self._kedge("status", *self._which, "-o=yaml")
        found: int = yaml.safe_load(words)["pid"]
        return found

    def megabytes(self) -> int:
        lines = Path(f"/proc/{self.process()}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))

    def down(self) -> None:
        self._kedge("down", *self._which, "--purge")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedServer]:
    running = FuzzedServer(tmp_path_factory.mktemp("fuzz"))
    yield running
    running.down()


class Volley:
    """Sends many requests at once and keeps what must not be answered like that."""

    def __init__(self, server: FuzzedServer) -> None:
        self._server = server
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []

    async def fire(self, count: int) -> None:
        numbered = enumerate(itertools.islice(requests(SEED), count))
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._shoot(numbered))

    async def _shoot(self, numbered: Iterator[tuple[int, HostileRequest]]) -> None:
        connection = self._server.connection()
        for number, request in numbered:
            try:
                async with asyncio.timeout(30):
                    answer = await connection.send(*request)
            except TimeoutError:
                self._keep(number, request, "no answer within 30 s")
                await connection.close()
                continue
            self.statuses[answer.status] += 1
            text = answer.body[:1_000].decode(errors="replace")
            is_ours = answer.status == 500 and not any(words in text for words in NOT_OURS)
            if is_ours or "has a defect" in text:
                self._keep(number, request, f"{answer.status}: {text}")
        await connection.close()

    def _keep(self, number: int, request: HostileRequest, what: str) -> None:
        shown = f"{request.method} {request.target} {request.headers} {request.body[:2_000]!r}"
        self.failures.append(f"request {number} of seed {SEED}: {what}\n{shown}")


@pytest.mark.timeout(max(300, COUNT // 100))
async def test_no_request_breaks_stalls_or_fills_the_server(server: FuzzedServer) -> None:
    process = server.process()
    volley = Volley(server)
    await volley.fire(COUNT)
    print(dict(volley.statuses))
    assert not volley.failures, "\n".join(volley.failures[:20])
    assert server.process() == process
    assert server.megabytes() < MOST_MEGABYTES
    assert volley.statuses[201] > COUNT / 100, "too few of the requests were good ones"
