"""A cluster of a user who is not root: pods run, and what cannot be enforced is said."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kedge

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or "KEDGE_E2E_KUBECONFIG" in os.environ
    or not all(shutil.which(tool) for tool in ("setpriv", "kubectl")),
    reason="to become somebody else takes root and setpriv; and a cluster of our own, and kubectl",
)


class Somebody:
    """A user with a home and no rights, and a Python that they may run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        packages = [str(Path(kedge.__file__).parents[1])]
        packages += [path for path in sys.path if "site-packages" in path]
        self.environment = {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "states"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(packages),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.python = self._interpreter()

    def _interpreter(self) -> str:
        # Only who is that user already sees what they may run.
        question = "import os, sys, msgspec; print(os.access(sys.executable, os.X_OK), sys.version)"
        for python in (sys.executable, SYSTEM_PYTHON):
            minor = ".".join(map(str, sys.version_info[:2]))
            if self.run(python, "-c", question).stdout.startswith(f"True {minor}."):
                return python
        pytest.skip("no Python that another user may run")

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        return subprocess.run(
            [*become, *words],
            env=self.environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def says(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
        return done.stdout.strip()

    def kedge(self, *arguments: str) -> str:
        return self.says(self.python, "-m", "kedge", *arguments)

    def kubectl(self, *arguments: str) -> str:
        return self.says("kubectl", *arguments)


@pytest.fixture
def somebody() -> Iterator[Somebody]:
    home = Path(tempfile.mkdtemp(prefix="kedge-somebody-"))
    os.chown(home, NOBODY, NOBODY)
    found = Somebody(home)
    yield found
    found.run(found.python, "-m", "kedge", "down", "--purge")
    shutil.rmtree(home)


def test_pods_run_without_root(somebody: Somebody, eventually: Callable[..., Any]) -> None:
    somebody.kedge("up", "--nodes=1")
    level = somebody.kubectl("get", "node", "node-1", "-o=jsonpath={.metadata.labels}")
    assert json.loads(level)["kedge.dev/level"] in ("userns", "plain")
    assert "level userns" in somebody.kedge("status") or "level plain" in somebody.kedge("status")
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", "echo hello; exec sleep 1000"],
        "resources": {"limits": {"memory": "64Mi", "cpu": "100m"}},
    }
    spec = json.dumps({"spec": {"containers": [container]}})
    somebody.kubectl("run", "limited", "--image=host", f"--overrides={spec}")
    somebody.kubectl("wait", "--for=condition=Ready", "pod/limited", "--timeout=30s")
    eventually(lambda: somebody.kubectl("logs", "limited") == "hello")
    assert somebody.kubectl("exec", "limited", "--", "echo", "inside") == "inside"
    events = somebody.kubectl(
        "get", "events", "--field-selector=reason=NotEnforced", "-o=jsonpath={.items[*].message}"
    )
    assert "the memory limit is not enforced" in events
    assert "the cpu limit is not enforced" in events
    somebody.kubectl("delete", "pod", "limited", "--now")
    somebody.kedge("down", "--purge")
    assert not list((somebody.home / "states" / "kedge").glob("*"))
    assert str(somebody.home) not in Path("/proc/self/mountinfo").read_text()
    assert not running(somebody.home)


def running(home: Path) -> list[str]:
    """The processes that have to do with a directory."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_text()
        except OSError:
            continue
        if str(home) in words:
            found.append(words)
    return found


def test_homes_are_hidden_in_the_image_host(
    somebody: Somebody, eventually: Callable[..., Any]
) -> None:
    with tempfile.TemporaryDirectory(dir="/home", prefix="kedge-test-") as directory:
        key = Path(directory) / "key"
        key.write_text("a private key")
        os.chmod(directory, 0o755)
        somebody.kedge("up", "--nodes=1")
        script = f"cat {key} || ls -A /home; echo done"
        somebody.kubectl("run", "h", "--image=host", "--restart=Never", "--", "sh", "-c", script)
        eventually(lambda: "done" in somebody.run("kubectl", "logs", "h").stdout)
        said = somebody.kubectl("logs", "h")
        assert "a private key" not in said
        assert Path(directory).name not in said.splitlines()


def test_a_pod_with_users_of_its_own_is_refused(
    somebody: Somebody, eventually: Callable[..., Any]
) -> None:
    somebody.kedge("up", "--nodes=1")
    spec = json.dumps({"spec": {"hostUsers": False}})
    somebody.kubectl("run", "own", "--image=host", f"--overrides={spec}", "--", "sleep", "1000")
    path = "-o=jsonpath={.items[*].message}"
    chosen = "--field-selector=reason=FailedCreatePodSandBox"
    eventually(lambda: somebody.kubectl("get", "events", chosen, path))
    said = somebody.kubectl("get", "events", chosen, path)
    assert "can't set `spec.hostUsers: false`, runtime does not support user namespaces" in said
    assert "this node has the level" in said
    handlers = "-o=jsonpath={.status.runtimeHandlers[0].features.userNamespaces}"
    assert somebody.kubectl("get", "node", "node-1", handlers) == "false"
    assert somebody.kubectl("get", "pod", "own", "-o=jsonpath={.status.phase}") == "Pending"
