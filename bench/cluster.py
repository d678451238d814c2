"""A throw-away cluster for a bench, started by the real command and gone afterwards."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


class Home:
    """A directory that holds one cluster, its kubeconfig, and nothing of the user's."""

    def __init__(self, directory: Path, sources: Path | None = None) -> None:
        self.state = directory / "state"
        kubeconfig = directory / "kubeconfig"
        mine = {k: v for k, v in os.environ.items() if not k.startswith("KEDGE_")}
        self._environment = mine | {"XDG_STATE_HOME": str(directory / "states")}
        if sources is not None:
            self._environment["PYTHONPATH"] = str(sources)
        self._which = ("--name=bench", f"--state={self.state}")
        # Without a node: benchmarks measure the server, and a node would take time and memory.
        self._up = ("up", *self._which, "--port=0", "--nodes=0", f"--kubeconfig={kubeconfig}")

    def up(self, store: str, *flags: str) -> None:
        """Start the cluster; returns when it is ready."""
        self._kedge(*self._up, f"--store={store}", *flags)

    def running(self) -> "Cluster":
        """The cluster that was started."""
        return self._cluster(self._kedge("status", *self._which, "-o=json"))

    def running_again(self, patience: float) -> "Cluster":
        """The cluster after a restart of its server, once it is ready. A large one may be busy for
        a while, and `kedge status` says so by its exit code."""
        deadline = perf_counter() + patience
        while True:
            done = self._run("status", *self._which, "-o=json")
            if done.returncode == 0 or perf_counter() > deadline:
                return self._cluster(checked(done))
            sleep(1)

    def _cluster(self, text: str) -> "Cluster":
        status: dict[str, Any] = json.loads(text)
        token = (self.state / "token").read_text().strip()
        others = [each["pid"] for each in status.get("servers", ())]
        return Cluster(status["address"], token, status["pid"], others)

    def down(self) -> None:
        self._kedge("down", *self._which)

    def _kedge(self, *arguments: str) -> str:
        return checked(self._run(*arguments))

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kedge", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )


def checked(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command printed; the bench ends if it failed."""
    if done.returncode:
        sys.exit(f"{' '.join(done.args[2:])}:\n{done.stderr}{done.stdout}")
    return done.stdout


class Cluster:
    """Where a running cluster is, and what to say to it."""

    def __init__(self, url: str, token: str, pid: int, servers: Sequence[int] = ()) -> None:
        """`servers` are the processes of all servers, if there are several."""
        self.url = url
        self.token = token
        self.pid = pid
        self.pids = servers or [pid]

    def resident_mb(self) -> float:
        """Return the resident memory of all servers in megabytes."""
        return sum(map(resident_mb, self.pids), 0.0)

    def processor_seconds(self) -> float:
        """Return the processor seconds of all servers so far."""
        return sum(map(processor_seconds, self.pids), 0.0)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"the kernel does not report the size of process {pid}")


def processor_seconds(pid: int) -> float:
    """Return the processor seconds that all threads of a process have taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def home(sources: Path | None = None) -> Iterator[Home]:
    """Yield a directory for a cluster; at the end the cluster is stopped and deleted. `sources` are
    those of another version of kedge."""
    with tempfile.TemporaryDirectory(prefix="kedge-bench-") as directory:
        place = Home(Path(directory), sources)
        try:
            yield place
        finally:
            if place.state.exists():
                place.down()


Measure = Callable[[Home, argparse.Namespace], Coroutine[Any, Any, None]]
UpFlags = Callable[[argparse.Namespace], Sequence[str]]


def run(
    description: str | None,
    numbers: Mapping[str, tuple[float, str]],
    measure: Measure,
    up_flags: UpFlags = lambda _: (),
) -> None:
    """Measure a cluster of its own. `numbers` are by flag: the default, and the help. `up_flags`
    returns further flags of `kedge up`."""
    flags = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, (default, text) in numbers.items():
        flags.add_argument(f"--{name}", type=type(default), default=default, help=text)
    given = flags.parse_args()
    with home() as place:
        place.up("sqlite", *up_flags(given))
        asyncio.run(measure(place, given))
