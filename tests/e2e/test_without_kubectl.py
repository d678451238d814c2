"""A person without kubectl runs, watches, changes and reaches pods with kedge alone."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import urllib.request
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import ok

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tests.e2e.conftest import Terminal

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: host
        workingDir: /srv
        command: [sh, -c, "echo started; exec python3 -m http.server 8000"]
        ports: [{name: http, containerPort: 8000}]
        readinessProbe: {tcpSocket: {port: http}, periodSeconds: 1}
        volumeMounts: [{name: pages, mountPath: /srv}]
      volumes: [{name: pages, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
"""


@pytest.fixture
def person(terminal: Terminal) -> Terminal:
    ok(terminal.kedge("up"))
    (terminal.home / "web.yaml").write_text(WEB)
    ok(terminal.kedge("apply", "-f", "web.yaml"))
    ok(terminal.kedge("rollout", "status", "deploy/web", "--timeout=40s"))
    return terminal


def test_a_workload_is_rolled_out_scaled_and_rolled_back(person: Terminal) -> None:
    kedge = person.kedge
    assert ok(kedge("scale", "deploy/web", "--replicas=2")) == "deployment.apps/web scaled\n"
    ok(kedge("wait", "pods", "-l", "app=web", "--for=condition=Ready", "--timeout=40s"))
    person.environment["KUBE_EDITOR"] = "sed -i s/echo.started/echo\\ edited/"
    assert ok(kedge("edit", "deploy/web")) == "deployment.apps/web edited\n"
    rolled = ok(kedge("rollout", "status", "deploy/web", "--timeout=40s"))
    assert rolled.endswith('deployment "web" successfully rolled out\n')
    assert ok(kedge("logs", "deploy/web")).startswith("edited\n")
    assert ok(kedge("rollout", "undo", "deploy/web")) == "deployment.apps/web rolled back\n"
    ok(kedge("rollout", "status", "deploy/web", "--timeout=40s"))
    assert ok(kedge("logs", "deploy/web")).startswith("started\n")
    history = ok(kedge("rollout", "history", "deploy/web")).splitlines()
    assert [line.split()[0] for line in history[2:] if line] == ["2", "3"]
    assert "ScalingReplicaSet" in ok(kedge("events", "--for", "deploy/web"))
    ok(kedge("delete", "deploy", "web", "--wait=false"))
    ok(kedge("wait", "pods", "-l", "app=web", "--for=delete", "--timeout=40s"))


def test_files_and_ports_of_a_pod(person: Terminal) -> None:
    kedge = person.kedge
    pod = ok(kedge("get", "pods", "-o", "name")).strip().partition("/")[2]
    pages = person.home / "pages"
    (pages / "deep").mkdir(parents=True)
    (pages / "deep" / "index.html").write_text("hello from kedge")
    ok(kedge("cp", "pages/deep", f"{pod}:/srv/in"))
    ok(kedge("cp", f"default/{pod}:/srv/in", "out"))
    assert (person.home / "out" / "index.html").read_text() == "hello from kedge"
    missing = kedge("cp", f"{pod}:/srv/none", "x")
    assert missing.returncode == 1
    assert "none" in missing.stderr
    with forwarded(person, "svc/web", ":80") as address:
        for _ in range(2):
            with urllib.request.urlopen(f"http://{address}/in/", timeout=20) as answer:
                assert answer.read() == b"hello from kedge"


def forwarded(person: Terminal, *words: str) -> AbstractContextManager[str]:
    from contextlib import contextmanager

    @contextmanager
    def forward() -> Iterator[str]:
        command = [sys.executable, "-m", "kedge", "port-forward", *words]
        with subprocess.Popen(
            command, env=person.environment, cwd=person.home, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().split()[2]
            finally:
                process.terminate()

    return forward()


def test_what_is_wrong_is_found_out(person: Terminal) -> None:
    kedge = person.kedge
    assert "nothing: the pod runs and is ready" in ok(kedge("doctor", "deploy/web"))
    ok(kedge("run", "lost", "--image=example.invalid/none:1"))
    ok(kedge("run", "crash", "--image=host", "--", "sh", "-c", "echo last words; exit 3"))
    waits = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff"
    ok(kedge("wait", "pod/crash", waits, "--timeout=40s"))
    found = kedge("doctor", "crash")
    assert found.returncode == 1
    assert found.stdout.startswith('pod/crash: container "crash" ends again and again with exit')
    pulled = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ImagePullBackOff"
    ok(kedge("wait", "pod/lost", pulled, "--timeout=40s"))
    assert 'the image "example.invalid/none:1"' in kedge("doctor", "lost").stdout
    assert ok(kedge("completion", "--words", "--", "logs", "cr")) == "crash\n"
    ok(kedge("run", "quiet", "--image=host", "--env=PASSWORD=hunter2", "--", "sleep", "hunter2"))
    ok(kedge("support-bundle", "--file", "b.tar.gz"))
    with tarfile.open(person.home / "b.tar.gz") as bundle:
        texts = {each.name: bundle.extractfile(each).read() for each in bundle}  # type: ignore[union-attr]
    assert b"quiet" in texts["b/objects/pods.json"]
    assert not [name for name in texts if name.endswith(".failed")]
    assert not [name for name, text in texts.items() if b"hunter2" in text]
    token = (person.states / "default" / "token").read_bytes().strip()
    assert not [name for name, text in texts.items() if token in text]
    ok(kedge("down"))
    assert "INFO" in ok(kedge("logs", "server", "--tail=5"))
    assert ok(kedge("logs", "node")) != ""


def test_a_pod_is_run_and_left(person: Terminal) -> None:
    kedge = person.kedge
    once = ("run", "once", "--image=host", "--restart=Never", "--rm", "--attach", "--")
    done = kedge(*once, "sh", "-c", "echo out; exit 3")
    assert (done.returncode, done.stdout) == (3, 'out\npod "once" deleted\n')
    piped = ("run", "-i", "--rm", "-q", "piped", "--image=host", "--restart=Never", "--", "cat")
    fed = person.run(sys.executable, "-m", "kedge", *piped, input="through\n")
    assert (fed.returncode, fed.stdout) == (0, "through\n")
    assert "once" not in ok(kedge("-n", "default", "get", "pods"))
