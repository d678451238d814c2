"""A cluster of a user who is not root: pods run, and what cannot be enforced is said."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import User

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or "KEDGE_E2E_KUBECONFIG" in os.environ
    or not all(shutil.which(tool) for tool in ("setpriv", "kubectl")),
    reason="becoming another user takes root and setpriv; and a cluster of our own, and kubectl",
)


def test_pods_run_without_root(ordinary_user: "User", eventually: Callable[..., Any]) -> None:
    ordinary_user.does("up", "--nodes=1")
    level = ordinary_user.reads("get", "node", "node-1", "-o=jsonpath={.metadata.labels}")
    assert json.loads(level)["kedge.dev/level"] in ("userns", "plain")
    assert "level userns" in ordinary_user.does("status") or "level plain" in ordinary_user.does(
        "status"
    )
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", "echo hello; exec sleep 1000"],
        "resources": {"limits": {"memory": "64Mi", "cpu": "100m"}},
    }
    spec = json.dumps({"spec": {"containers": [container]}})
    ordinary_user.reads("run", "limited", "--image=host", f"--overrides={spec}")
    ordinary_user.reads("wait", "--for=condition=Ready", "pod/limited", "--timeout=30s")
    eventually(lambda: ordinary_user.reads("logs", "limited") == "hello")
    assert ordinary_user.reads("exec", "limited", "--", "echo", "inside") == "inside"
    events = ordinary_user.reads(
        "get", "events", "--field-selector=reason=NotEnforced", "-o=jsonpath={.items[*].message}"
    )
    assert "the memory limit is not enforced" in events
    assert "the cpu limit is not enforced" in events
    ordinary_user.reads("delete", "pod", "limited", "--now")
    ordinary_user.does("down", "--purge")
    assert not list((ordinary_user.home / "states" / "kedge").glob("*"))
    assert str(ordinary_user.home) not in Path("/proc/self/mountinfo").read_text()
    assert not running(ordinary_user.home)


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
    ordinary_user: "User", eventually: Callable[..., Any]
) -> None:
    with tempfile.TemporaryDirectory(dir="/home", prefix="kedge-test-") as directory:
        key = Path(directory) / "key"
        key.write_text("a private key")
        os.chmod(directory, 0o755)
        ordinary_user.does("up", "--nodes=1")
        script = f"cat {key} || ls -A /home; echo done"
        ordinary_user.reads("run", "h", "--image=host", "--restart=Never", "--", "sh", "-c", script)
        eventually(lambda: "done" in ordinary_user.kubectl("logs", "h").stdout)
        said = ordinary_user.reads("logs", "h")
        assert "a private key" not in said
        assert Path(directory).name not in said.splitlines()


def test_a_pod_with_users_of_its_own_is_refused(
    ordinary_user: "User", eventually: Callable[..., Any]
) -> None:
    ordinary_user.does("up", "--nodes=1")
    spec = json.dumps({"spec": {"hostUsers": False}})
    ordinary_user.reads("run", "own", "--image=host", f"--overrides={spec}", "--", "sleep", "1000")
    path = "-o=jsonpath={.items[*].message}"
    chosen = "--field-selector=reason=FailedCreatePodSandBox"
    eventually(lambda: ordinary_user.reads("get", "events", chosen, path))
    said = ordinary_user.reads("get", "events", chosen, path)
    assert "can't set `spec.hostUsers: false`, runtime does not support user namespaces" in said
    assert "this node has the level" in said
    handlers = "-o=jsonpath={.status.runtimeHandlers[0].features.userNamespaces}"
    assert ordinary_user.reads("get", "node", "node-1", handlers) == "false"
    assert ordinary_user.reads("get", "pod", "own", "-o=jsonpath={.status.phase}") == "Pending"
