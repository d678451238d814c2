"""Time from `pip install` to an application with a database that answers, as an ordinary user.

Run as root, which becomes the user 65534 with an empty home directory. The wheel of kedge is
built before. pip finds the packages that it needs as it is configured on this machine, and has none
of an earlier run.

    bench/from_pip.py [--python PATH]
"""

import argparse
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, sleep

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/guestbook"
ORDINARY_USER = 65534
PATIENCE = 120.0


class Stopwatch:
    """Prints elapsed and processor time of each step."""

    def __init__(self) -> None:
        self.total = 0.0

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        began, used = perf_counter(), _processor_seconds()
        yield
        taken, used = perf_counter() - began, _processor_seconds() - used
        self.total += taken
        print(f"{name:42}{taken:8.1f} s{used:8.1f} s of processor time", flush=True)


class User:
    """Runs commands as an ordinary user."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = ("PATH", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_FIND_LINKS", "PIP_NO_INDEX")
        self._environment = {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "HOME": str(home),
            "KUBECONFIG": str(home / "config"),
        }

    def run(self, *words: str | Path) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            env=self._environment,
            cwd=self.home,
            user=ORDINARY_USER,
            group=ORDINARY_USER,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{words}:\n{done.stderr}{done.stdout}")
        return done.stdout


def main() -> None:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--python", default="/usr/bin/python3", help="a Python that nobody may run")
    given = flags.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(prefix="kedge-pip-") as directory:
        home = Path(directory)
        os.chown(home, ORDINARY_USER, ORDINARY_USER)
        wheel = _wheel(home / "wheels")
        shutil.copytree(EXAMPLE, home / "guestbook")
        measure(User(home), wheel, given.python)


def measure(user: User, wheel: Path, python: str) -> None:
    watch, kedge = Stopwatch(), user.home / "venv/bin/kedge"
    with watch.step("python3 -m venv"):
        user.run(python, "-m", "venv", "venv")
    with watch.step("pip install kedge"):
        user.run("venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    try:
        with watch.step("kedge up"):
            user.run(kedge, "up")
        with watch.step("configmap and manifests"):
            programs = "--from-file=guestbook/programs"
            user.run("kubectl", "create", "configmap", "guestbook", programs)
            user.run("kubectl", "apply", "-f", "guestbook/guestbook.yaml")
        with watch.step("kubectl rollout status"):
            user.run("kubectl", "rollout", "status", "deployment/guestbook")
            user.run("kubectl", "rollout", "status", "statefulset/store")
        with watch.step("first entry by curl"):
            url = user.run(kedge, "open", "svc/guestbook", "--no-browser").strip()
            _sign(user, url)
        print(f"{'from python3 -m venv to the first entry':42}{watch.total:8.1f} s")
    finally:
        user.run(kedge, "down", "--purge", "--yes")


def _sign(user: User, url: str) -> None:
    until = perf_counter() + PATIENCE
    user.run("curl", "-sf", "--retry", "5", "--retry-all-errors", "-d", "entry=Hello", url)
    while "<li>Hello" not in user.run("curl", "-s", url):
        if perf_counter() > until:
            sys.exit("the entry does not appear")
        sleep(0.1)


def _wheel(place: Path) -> Path:
    """Build the wheel of this checkout."""
    place.mkdir()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", place, ROOT], check=True)
    return next(place.glob("*.whl"))


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
