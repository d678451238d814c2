"""Logs, exec, attach, port-forward, cp and debug, by real clients on pods that really run."""

import contextlib
import fcntl
import hashlib
import os
import pty
import re
import select
import signal
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

KUBELET_PORT = 10250
MEBIBYTE = 1 << 20
PATIENCE = 30.0
SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
"""How a kubectl of our days is made to speak as old ones do."""


@pytest.fixture(params=["websocket", "spdy"])
def client(request: pytest.FixtureRequest, kubectl: Any) -> Any:
    """Each kubectl in each protocol."""
    if request.param == "spdy":
        kubectl.environment |= SPDY
    return kubectl


@pytest.fixture
def shell(pods: Any) -> str:
    """A pod to run commands in."""
    pods.create("shell", "echo ready; exec sleep 1000")
    pods.ready("shell")
    return "shell"


def run(client: Any, *words: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        client.command(words),
        input=data,
        env=client.environment,
        cwd=client.cluster.home,
        capture_output=True,
        timeout=60,
        check=False,
    )


# exec.


def test_a_command_has_its_own_output_errors_and_exit_code(client: Any, shell: str) -> None:
    done = run(client, "exec", shell, "--", "sh", "-c", "echo out; echo err >&2; exit 42")
    assert done.returncode == 42
    assert done.stdout == b"out\n"
    assert done.stderr == b"err\ncommand terminated with exit code 42\n"
    assert run(client, "exec", shell, "--", "true").returncode == 0


def test_a_killed_command_and_a_missing_one_are_told_apart(client: Any, shell: str) -> None:
    assert run(client, "exec", shell, "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = run(client, "exec", shell, "--", "no-such-program")
    assert missing.returncode == 1
    assert b'exec: "no-such-program": executable file not found in $PATH' in missing.stderr


def test_much_goes_in_and_much_comes_out(client: Any, shell: str) -> None:
    data = os.urandom(20 * MEBIBYTE)
    done = run(client, "exec", "-i", shell, "--", "sha256sum", data=data)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    done = run(client, "exec", shell, "--", "head", "-c", str(50 * MEBIBYTE), "/dev/zero")
    assert len(done.stdout) == 50 * MEBIBYTE


def test_a_command_that_takes_only_the_beginning_ends_well(client: Any, shell: str) -> None:
    data = b"x" * (5 * MEBIBYTE)
    done = run(client, "exec", "-i", shell, "--", "head", "-c", "3", data=data)
    assert (done.returncode, done.stdout) == (0, b"xxx")


def test_a_command_ends_with_its_client(
    kubectl: Any, shell: str, eventually: Callable[..., Any]
) -> None:
    with kubectl.start("exec", shell, "--", "sh", "-c", "echo here; exec sleep 9753") as lines:
        lines.until("here")

    def gone() -> bool:
        return "sleep 9753" not in kubectl("exec", shell, "--", "ps", "ax").stdout

    eventually(gone, PATIENCE)


def test_files_are_copied_both_ways(
    kubectl: Any, shell: str, node: dict[str, Any], tmp_path: Path
) -> None:
    content = os.urandom(3 * MEBIBYTE)
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(content)
    has_all_users = node["metadata"]["labels"]["kedge.dev/level"] == "full"
    flags = [] if has_all_users else ["--no-preserve"]
    kubectl("cp", *flags, str(there), f"{shell}:/var/tmp/copied")
    kubectl("cp", f"{shell}:/var/tmp/copied", str(back))
    assert back.read_bytes() == content


def test_what_cannot_be_entered_is_told_in_kubernetes_words(any_kubectl: Any, pods: Any) -> None:
    pods.create("nowhere", nodeSelector={"no": "such-node"})
    path = f"{pods.path}/nowhere"
    message = "pod nowhere does not have a host assigned"
    assert message in any_kubectl.fails("exec", "nowhere", "--", "true")
    assert pods.api.exists(path)
    pods.create("two", containers=[_sleeper("a"), _sleeper("b")])
    pods.ready("two")
    refused = _refused(pods.api, f"{pods.path}/two/log")
    assert refused == "a container name must be specified for pod two, choose one of: [a b]"
    refused = _refused(pods.api, f"{pods.path}/two/log?container=z")
    assert refused == "container z is not valid for pod two"


def _sleeper(name: str) -> dict[str, Any]:
    return {"name": name, "image": "host", "command": ["sleep", "1000"]}


def _refused(api: Any, path: str) -> str:
    try:
        api.get(path)
    except Exception as refused:
        return str(refused.status["message"])  # type: ignore[attr-defined]
    raise AssertionError(f"{path} was not refused")


# Terminals.


class Terminal:
    """A program at a terminal, typed at by a test."""

    def __init__(self, command: list[str], environment: dict[str, str], cwd: Path) -> None:
        self.pid, self._side = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], command, environment)
        self.seen = b""
        self.resize(24, 80)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._side, text.encode())

    def until(self, text: str) -> None:
        """Wait for something to be shown; what was shown before it is forgotten."""
        wanted = text.encode()
        while wanted not in self.seen:
            assert self._more(), f"no {text!r}, but {self.seen!r}"
        self.seen = self.seen.partition(wanted)[2]

    def until_shown(self, text: str, by: str) -> None:
        """Type the same again and again until it shows something; for what needs its time."""
        for _ in range(100):
            if text.encode() in self.seen:
                return
            self.type(by)
            time.sleep(0.3)
            while self._more(0):
                pass
        raise AssertionError(f"no {text!r}, but {self.seen!r}")

    def end(self) -> int:
        """The exit code, once the program has ended by itself."""
        while self._more():
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return code

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._side)

    def _more(self, patience: float = PATIENCE) -> bool:
        if not select.select([self._side], [], [], patience)[0]:
            return False
        try:
            data = os.read(self._side, 65_536)
        except OSError:
            data = b""
        self.seen += data
        return bool(data)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    with contextlib.ExitStack() as stack:

        def start(client: Any, *words: str) -> Terminal:
            made = Terminal(client.command(words), client.environment, client.cluster.home)
            stack.callback(made.close)
            return made

        yield start


def test_a_shell_at_a_terminal_knows_its_size_and_its_keys(
    client: Any, shell: str, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(client, "exec", "-it", shell, "--", "sh", "-c", "PS1='$ ' exec sh")
    screen.until("$ ")
    screen.until_shown("24 80\r\n", by="stty size\r")
    screen.resize(50, 132)
    screen.until_shown("50 132\r\n", by="stty size\r")
    screen.type("sleep 1000 && echo not interrupted\r")
    screen.until("echo not interrupted\r\n")
    time.sleep(0.3)
    screen.type("\x03")
    screen.type("exit 7\r")
    assert screen.end() == 7
    assert b"not interrupted" not in screen.seen


def test_one_can_attach_to_a_shell_and_leave_it(
    client: Any, pods: Any, terminal: Callable[..., Terminal]
) -> None:
    container = {
        "command": ["sh"],
        "stdin": True,
        "tty": True,
        "env": [{"name": "PS1", "value": "% "}],
    }
    pods.create("attached", container=container, restartPolicy="Never")
    pods.ready("attached")
    screen = terminal(client, "attach", "-it", "attached")
    screen.until_shown("% ", by="\r")
    screen.type("echo $((40 + 2))\r")
    screen.until("42\r\n")
    screen.type("exit 5\r")
    assert screen.end() == 0
    assert pods.over("attached")["status"]["phase"] == "Failed"


def test_what_is_piped_into_a_new_pod_comes_out_of_it(client: Any, namespace: str) -> None:
    words = ("run", "-i", "--rm", "--restart=Never", "piped", "--image=host", "--quiet", "--")
    done = run(client, *words, "sh", "-c", "wc -c", data=b"x" * MEBIBYTE)
    assert done.returncode == 0, done.stderr
    assert str(MEBIBYTE).encode() in done.stdout


def test_a_container_can_be_debugged_by_another_beside_it(
    kubectl: Any, shell: str, terminal: Callable[..., Terminal]
) -> None:
    words = ("debug", "-it", shell, "--image=host", "--target=main", "--", "sh")
    screen = terminal(kubectl, *words)
    screen.until_shown("sleep 1000\r\n", by="ps ax -o args | grep '^sleep'\r")
    screen.type("exit\r")
    assert screen.end() == 0


# Logs.


def test_a_log_is_shown_as_asked_for(kubectl: Any, pods: Any) -> None:
    pods.create("talker", "for i in 1 2 3; do echo line $i; done; echo oops >&2; exec sleep 1000")
    pods.ready("talker")
    assert kubectl("logs talker").stdout == "line 1\nline 2\nline 3\noops\n"
    assert kubectl("logs talker --tail=2").stdout == "line 3\noops\n"
    assert kubectl("logs talker --tail=0").stdout == ""
    assert kubectl("logs talker --limit-bytes=8").stdout == "line 1\nl"
    assert kubectl("logs talker --since=1h").stdout.count("\n") == 4
    stamped = kubectl("logs talker --timestamps --tail=1").stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{9}Z oops\n", stamped)
    assert kubectl("logs talker --prefix --tail=1").stdout == "[pod/talker/main] oops\n"
    raw = kubectl("get", "--raw", f"{pods.path}/talker/log?stream=Stderr").stdout
    assert raw == "oops\n"
    complaint = 'previous terminated container "main" in pod "talker" not found'
    assert complaint in kubectl.fails("logs talker --previous")


def test_the_run_before_the_last_is_kept(kubectl: Any, pods: Any, about: Any) -> None:
    script = "[ -e /cache/x ] && { echo second; exec sleep 1000; }; >/cache/x; echo first; exit 1"
    pods.create(
        "restarted",
        script,
        container={"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]},
        volumes=[{"name": "cache", "emptyDir": {}}],
    )
    pods.when("restarted", lambda pod: about.status(pod).get("restartCount"))
    pods.ready("restarted")
    assert kubectl("logs restarted").stdout == "second\n"
    assert kubectl("logs restarted --previous").stdout == "first\n"


def test_a_log_is_followed_to_the_end_of_its_container(kubectl: Any, pods: Any) -> None:
    script = "for i in 1 2 3 4; do echo $i; sleep 0.3; done; printf 'no newline'"
    pods.create("counting", script, restartPolicy="Never")
    pods.when("counting", lambda pod: pod["status"].get("phase") in ("Running", "Succeeded"))
    assert kubectl("logs -f counting").stdout == "1\n2\n3\n4\nno newline"


def test_a_log_is_shown_and_followed_across_rotations(
    any_kubectl: Any, pods: Any, eventually: Callable[..., Any]
) -> None:
    # Longer than one file may be, in lines that each say which they are.
    script = "seq -f '%%09.0f %s' 1 150000; sleep 14; seq -f 'again %%g' 1 5; exec sleep 1000"
    pods.create("verbose", script % ("x" * 90))
    pods.ready("verbose")
    with any_kubectl.start("logs", "-f", "--tail=1", "verbose") as lines:
        lines.until("again 5")
    text = any_kubectl("logs verbose").stdout
    numbers = [int(line.split()[0]) for line in text.splitlines() if line[0] == "0"]
    assert numbers == list(range(1, 150001))
    assert any_kubectl("logs verbose --tail=2").stdout == "again 4\nagain 5\n"


# Ports.


@contextlib.contextmanager
def forwarding(client: Any, *ports: str) -> Iterator[tuple[list[int], Any]]:
    with client.start("port-forward", "pod/web", *ports) as lines:
        local = []
        for _ in ports:
            local.append(int(lines.until("Forwarding from 127.0.0.1").split(":")[1].split()[0]))
        yield local, lines


@pytest.fixture
def web(pods: Any) -> bytes:
    """A pod that serves a file on port 8000; returns its content."""
    script = """
        mkdir /var/tmp/www && cd /var/tmp/www
        seq 1 3000000 > numbers
        exec python3 -m http.server 8000"""
    listens = "import socket; socket.create_connection(('127.0.0.1', 8000))"
    probe = {"exec": {"command": ["python3", "-c", listens]}, "periodSeconds": 1}
    pods.create("web", script, container={"readinessProbe": probe})
    pods.ready("web")
    return b"".join(b"%d\n" % number for number in range(1, 3_000_001))


def fetch(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/numbers", timeout=PATIENCE) as answer:
        content: bytes = answer.read()
    return content


def test_many_connections_share_a_forwarded_port(client: Any, web: bytes) -> None:
    with forwarding(client, ":8000") as ([port], _), ThreadPoolExecutor(4) as four:
        found = list(four.map(fetch, [port] * 6))
    assert all(content == web for content in found)


def test_a_port_that_nobody_listens_on_is_told(client: Any, web: bytes) -> None:
    with forwarding(client, ":9") as ([port], lines):
        with pytest.raises(OSError, match=r".*"):
            fetch(port)
        assert "Connection refused" in lines.until("error forwarding port 9 to pod web")


def test_a_pod_is_reached_through_the_api_server(
    any_kubectl: Any, web: bytes, pods: Any, pod_network: None
) -> None:
    path = f"{pods.path}/web:8000/proxy/numbers"
    assert any_kubectl("get", "--raw", path).stdout.encode() == web


def test_a_node_is_asked_through_the_api_server(any_kubectl: Any, node: Any, shell: str) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}/proxy"
    assert any_kubectl("get", "--raw", f"{path}/healthz").stdout == "ok"
    listed = any_kubectl("get", "--raw", f"{path}/pods").stdout
    assert f'"namespace":"{any_kubectl.namespace}"' in listed


# Rights.


def test_a_node_tells_nothing_to_strangers(
    api: Any, node: Any, from_machine: Callable[[str], str]
) -> None:
    tls = ssl.create_default_context(cadata=api.ca_pem)
    status = node["status"]
    internal = next(a["address"] for a in status["addresses"] if a["type"] == "InternalIP")
    address = from_machine(internal)
    ports = {status["daemonEndpoints"]["kubeletEndpoint"]["Port"]}
    if address == internal != "127.0.0.1":
        # An address of the node's own: it also listens where kubelets do.
        ports.add(KUBELET_PORT)
    for port, path in product(ports, ("healthz", "pods", "exec/default/x/y")):
        url = f"https://{address}:{port}/{path}"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, timeout=PATIENCE, context=tls)
        caught.value.close()
        assert caught.value.code == 401


# Other clients.


PYTHON_CLIENT = """
import hashlib, sys
from kubernetes import client, config
from kubernetes.stream import portforward, stream

namespace = sys.argv[1]
config.load_kube_config()
core = client.CoreV1Api()
running = stream(
    core.connect_get_namespaced_pod_exec, "shell", namespace,
    command=["sh", "-c", "read line; echo got $line; exit 3"],
    stdin=True, stdout=True, stderr=True, tty=False, _preload_content=False,
)
running.write_stdin("this\\n")
running.run_forever(timeout=30)
print(running.read_stdout().strip(), running.returncode)
ports = portforward(
    core.connect_get_namespaced_pod_portforward, "web", namespace, ports="8000"
)
connected = ports.socket(8000)
connected.setblocking(True)
connected.sendall(b"GET /numbers HTTP/1.0\\r\\n\\r\\n")
answer = b"".join(iter(lambda: connected.recv(1 << 20), b""))
print(hashlib.sha256(answer.partition(b"\\r\\n\\r\\n")[2]).hexdigest())
"""


def test_the_python_client_runs_commands_and_forwards_ports(
    cluster: Any, namespace: str, shell: str, web: bytes
) -> None:
    pytest.importorskip("kubernetes")
    # In a process of its own: it leaves sockets open.
    done = subprocess.run(
        [sys.executable, "-c", PYTHON_CLIENT, namespace],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["got this 3", hashlib.sha256(web).hexdigest()]


def kedge(cluster: Any, namespace: str) -> Any:
    """kedge's own commands, used as kubectl is."""

    class Kedge:
        environment = cluster.environment

        def __init__(self) -> None:
            self.cluster = cluster

        def command(self, words: tuple[str, ...]) -> list[str]:
            name, *rest = words
            return [sys.executable, "-m", "kedge", name, f"--namespace={namespace}", *rest]

    return Kedge()


def test_kedge_has_logs_and_exec_of_its_own(
    cluster: Any, namespace: str, shell: str, terminal: Callable[..., Terminal]
) -> None:
    client = kedge(cluster, namespace)
    assert run(client, "logs", shell).stdout == b"ready\n"
    data = os.urandom(5 * MEBIBYTE)
    done = run(client, "exec", "-i", shell, "--", "sha256sum", data=data)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    done = run(client, "exec", shell, "--", "sh", "-c", "exit 42")
    assert (done.returncode, done.stderr) == (42, b"command terminated with exit code 42\n")
    screen = terminal(client, "exec", "-it", shell, "--", "sh", "-c", "PS1='$ ' exec sh")
    screen.until("$ ")
    screen.resize(30, 100)
    screen.until_shown("30 100\r\n", by="stty size\r")
    screen.type("exit 9\r")
    assert screen.end() == 9


def test_many_commands_at_once_leave_nothing_behind(
    any_kubectl: Any, shell: str, eventually: Callable[..., Any]
) -> None:
    threads = [
        threading.Thread(target=run, args=(any_kubectl, "exec", shell, "--", "sleep", "0.2"))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert "sleep 0.2" not in any_kubectl("exec", shell, "--", "ps", "ax").stdout
