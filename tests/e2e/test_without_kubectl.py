"""A person without kubectl runs, watches, changes and reaches pods with kedge alone."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
from contextlib import contextmanager
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


SHELLS = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}


def test_shells_complete_names_of_the_cluster(person: Terminal) -> None:
    commands = person.home / "commands"
    commands.mkdir()
    (commands / "kedge").write_text(f'#!/bin/sh\nexec {sys.executable} -m kedge "$@"\n')
    (commands / "kedge").chmod(0o755)
    path = f"{commands}:{person.environment['PATH']}"
    person.environment |= {"PATH": path, "TERM": "dumb"}
    pod = ok(person.kedge("get", "pods", "-o", "name")).strip().partition("/")[2]
    here = [shell for shell in (*SHELLS, "fish") if shutil.which(shell)]
    for shell in here:
        if shell == "fish":
            assert offered_by_fish(person, "kedge rollout stat") == ["status"]
            assert offered_by_fish(person, "kedge get deploy/w") == ["deploy/web"]
            assert offered_by_fish(person, f"kedge logs {pod} -c m") == ["main"]
            continue
        with typed_into(SHELLS[shell], person.environment) as keyboard:
            keyboard.type(f"source <(kedge completion {shell})\n")
            keyboard.type("kedge rollout stat\t")
            keyboard.expect("kedge rollout status ")
            keyboard.type("deploy/w\t")
            keyboard.expect("deploy/web ")
            keyboard.type("\x15kedge logs web\t")
            keyboard.expect(pod)
            keyboard.type("-c m\t")
            keyboard.expect("main ")
    if missing := {*SHELLS, "fish"} - {*here}:
        pytest.skip(f"this machine has no {' and no '.join(missing)}: 'tools/setup shells'")


def offered_by_fish(person: Terminal, line: str) -> list[str]:
    """Return how fish would complete a command line. It shows them only at a whole terminal, but
    tells them to scripts."""
    script = f"kedge completion fish | source; complete -C '{line}'"
    return ok(person.run("fish", "--no-config", "-c", script)).splitlines()


class Keyboard:
    """The keys and the screen of a program at a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._screen = ""

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def expect(self, text: str) -> None:
        """Read the screen until the text is on it; what is before is forgotten."""
        deadline = time.monotonic() + 30
        while text not in self._screen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not appear: {self._screen!r}"
            if select.select([self._descriptor], [], [], left)[0]:
                self._screen += os.read(self._descriptor, 65536).decode(errors="replace")
        self._screen = self._screen.partition(text)[2]


@contextmanager
def typed_into(program: list[str], environment: dict[str, str]) -> Iterator[Keyboard]:
    """Run a program at a terminal of its own."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        program, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        try:
            yield Keyboard(ours)
        finally:
            process.kill()
            os.close(ours)


def test_progress_and_colours_are_for_terminals(person: Terminal) -> None:
    """At a terminal a wait shows what it waits for; NO_COLOR and pipes have no colours."""
    command = [sys.executable, "-m", "kedge", "wait", "deploy/web", "--for=condition=Lost"]
    with typed_into([*command, "--timeout=2s"], person.environment) as keyboard:
        keyboard.expect("Waiting for deployment.apps/web: it has no condition Lost (1 s)")
        keyboard.expect("timed out waiting for the condition on deployment.apps/web")
        keyboard.expect("'kedge doctor deployment/web -n default' shows more")
    piped = person.kedge("wait", "deploy/web", "--for=condition=Lost", "--timeout=1s")
    assert piped.stderr.startswith("error: timed out")
    missing = [sys.executable, "-m", "kedge", "get", "nonsense"]
    with typed_into(missing, person.environment | {"TERM": "xterm"}) as keyboard:
        keyboard.expect("\x1b[31merror\x1b[0m: ")
    with typed_into(missing, person.environment | {"TERM": "xterm", "NO_COLOR": "1"}) as keyboard:
        keyboard.expect("error: the server doesn't have a resource type")


def test_a_pod_is_run_and_left(person: Terminal) -> None:
    kedge = person.kedge
    once = ("run", "once", "--image=host", "--restart=Never", "--rm", "--attach", "--")
    done = kedge(*once, "sh", "-c", "echo out; exit 3")
    assert (done.returncode, done.stdout) == (3, 'out\npod "once" deleted\n')
    piped = ("run", "-i", "--rm", "-q", "piped", "--image=host", "--restart=Never", "--", "cat")
    fed = person.run(sys.executable, "-m", "kedge", *piped, input="through\n")
    assert (fed.returncode, fed.stdout) == (0, "through\n")
    assert "once" not in ok(kedge("-n", "default", "get", "pods"))
