"""A cluster that was really started, people at terminals, and nothing left running afterwards.

The suite knows only what users know: it can be pointed at any cluster by naming a kubeconfig in
KEDGE_E2E_KUBECONFIG, which is how its expectations are checked against Kubernetes itself.
"""

import base64
import copy
import functools
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple, TypeVar

import pytest
import yaml

import kedge
from kedge.cli.cluster import process
from kedge.machinery.clock import SystemClock

Outcome = subprocess.CompletedProcess[str]
Json = dict[str, Any]
T = TypeVar("T")

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
PATIENCE = 20.0
"""Seconds that anything may take before it counts as not happening."""


LONG_FILES = (
    "pods/attacks/test_restart.py",
    "pods/test_machines.py",
    "pods/test_dashboard.py",
    "pods/test_metrics_api.py",
    "pods/test_device_plugins.py",
    "pods/test_autoscaling.py",
    "pods/test_dra.py",
    "pods/test_job.py",
    "pods/test_unprivileged.py",
    "pods/test_stateful_set.py",
    "pods/test_deployment.py",
    "pods/test_services.py",
    "pods/test_network_policy.py",
    "pods/test_node_autoscaler.py",
    "pods/test_node_lifecycle.py",
    "pods/test_usage_details.py",
    "pods/test_usage_scheduling.py",
    "pods/attacks/test_logs.py",
    "pods/attacks/test_files.py",
    "test_examples.py",
    "test_pages.py",
    "test_up.py",
    "test_holding_up.py",
    "test_kopf.py",
    "attacks/test_numbers.py",
    "attacks/test_full_disk.py",
)
"""Files that take longer than others with as many tests. The last file of a run has one worker, so
these come first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; use it with --no-loadscope-reorder."""
    here = Path(__file__).parent
    if not all(item.path.is_relative_to(here) for item in items):
        return
    tests = Counter(item.path for item in items)

    def rank(item: pytest.Item) -> tuple[int, int]:
        name = str(item.path.relative_to(here))
        place = LONG_FILES.index(name) if name in LONG_FILES else len(LONG_FILES)
        return place, -tests[item.path]

    items.sort(key=rank)


def private_environment(home: Path) -> dict[str, str]:
    """An environment in which nothing is found, and nothing left, outside of this directory."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("KEDGE_", "KUBE"))}
    return clean | {
        # kubectl ends before it has garbage worth a search, which would take a sixth of its time.
        "GOGC": "off",
        "GOMEMLIMIT": "300MiB",
        "HOME": str(home),
        "TMPDIR": str(home),
        "XDG_STATE_HOME": str(home / "states"),
    }


class Terminal:
    """Runs `kedge` and `kubectl` with a home directory that is theirs alone."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kubeconfig = home / ".kube" / "config"
        self.states = home / "states" / "kedge"
        self.environment = private_environment(home)

    def run(self, *command: str, input: str | None = None) -> Outcome:
        return subprocess.run(
            command,
            input=input,
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def kedge(self, *arguments: str) -> Outcome:
        return self.run(sys.executable, "-m", "kedge", *arguments)

    def kubectl(self, *arguments: str, input: str | None = None) -> Outcome:
        return self.run("kubectl", *arguments, input=input)

    def account(self) -> str:
        """What clusters say of themselves, for whoever asks why something failed."""
        told = [self.kubectl("get", "pods,events", "-A", "-o", "wide").stdout]
        for log in sorted(self.states.rglob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-30:]
            told.append("\n".join([f"--- {log.name}", *lines]))
        return "\n".join(told)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("kubectl") is None:
        pytest.fail("no kubectl on the PATH: 'tools/setup kubectl' says how to get one")
    terminal = Terminal(tmp_path)
    yield terminal
    ended = terminal.kedge("down", "--all", "--purge", "--yes")
    end_processes_of(tmp_path)
    assert ended.returncode == 0, ended.stderr


def end_processes_of(home: Path) -> None:
    """Kill processes that a failed test left in the background: they hold the ports that its second
    try needs."""
    marker = f"HOME={home}".encode()
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker in (directory / "environ").read_bytes().split(b"\0"):
                os.kill(int(directory.name), signal.SIGKILL)


def ok(done: Outcome) -> str:
    """Return the output of a command that must succeed."""
    assert done.returncode == 0, f"{shlex.join(done.args)}: {done.stderr}{done.stdout}"
    return done.stdout


class User:
    """A user of the machine with a home directory, who runs kedge and kubectl: root, or a user
    without privileges."""

    def __init__(self, home: Path, uid: int) -> None:
        self.home = home
        self.states = home / "states" / "kedge"
        self.uid = uid
        packages = [str(Path(kedge.__file__).parents[1])]
        packages += [path for path in sys.path if "site-packages" in path]
        self.environment = {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "states"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(packages),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.become = (
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        )
        self.python = self._interpreter()

    def _interpreter(self) -> str:
        # Only a process of that user can find out what the user may run.
        question = "import os, sys, msgspec; print(os.access(sys.executable, os.X_OK), sys.version)"
        for python in (sys.executable, SYSTEM_PYTHON):
            minor = ".".join(map(str, sys.version_info[:2]))
            if self.run(python, "-c", question).stdout.startswith(f"True {minor}."):
                return python
        pytest.skip("no Python that another user may run")

    def run(self, *words: str, input: str | None = None) -> Outcome:
        return subprocess.run(
            [*self.become, *words],
            env=self.environment,
            input=input,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def kedge(self, *arguments: str) -> Outcome:
        return self.run(self.python, "-m", "kedge", *arguments)

    def does(self, *arguments: str) -> str:
        """Return what kedge prints when it succeeds."""
        return ok(self.kedge(*arguments))

    def fails(self, *arguments: str, codes: tuple[int, ...] = (1,)) -> str:
        """Return the error of kedge when it fails."""
        done = self.kedge(*arguments)
        assert done.returncode in codes, f"{arguments}: {done.stderr}{done.stdout}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr

    def kubectl(self, *arguments: str, input: str | None = None) -> Outcome:
        return self.run("kubectl", *arguments, input=input)

    def reads(self, *arguments: str) -> str:
        """Return what kubectl prints when it succeeds."""
        return ok(self.kubectl(*arguments)).strip()


@contextmanager
def machine_user(uid: int) -> Iterator[User]:
    """A user with a temporary home directory; their clusters are deleted afterwards."""
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("kubectl"):
        pytest.skip("becoming another user takes root and setpriv; and kubectl is needed")
    home = Path(tempfile.mkdtemp(prefix="kedge-user-"))
    os.chown(home, uid, uid)
    found = User(home, uid)
    yield found
    found.kedge("down", "--all", "--purge", "--yes")
    shutil.rmtree(home)


@pytest.fixture(name="machine_user", scope="session")
def machine_user_fixture() -> Any:
    return machine_user


@pytest.fixture
def ordinary_user() -> Iterator[User]:
    """A user without privileges."""
    with machine_user(NOBODY) as found:
        yield found


def eventually(condition: Callable[[], T], within: float = PATIENCE) -> T:
    """What the condition gives as soon as it is true."""
    clock = SystemClock()
    deadline = clock.monotonic() + within
    while not (found := condition()):
        if clock.monotonic() > deadline:
            raise AssertionError(f"this did not come true within {within:g} s")
        time.sleep(0.05)
    return found


@pytest.fixture(name="eventually", scope="session")
def eventually_fixture() -> Callable[..., Any]:
    return eventually


class Refused(Exception):
    """The server answered with a failure; `status` is the Status it sent."""

    def __init__(self, code: int, status: Json) -> None:
        super().__init__(f"{code}: {status.get('message')}")
        self.code = code
        self.status = status


def refusal(code: int, text: str) -> Refused:
    return Refused(code, json.loads(text) if text.startswith("{") else {"message": text})


class KeptConnection:
    """A connection that one thread uses again: a new one for each look at an object costs both
    sides several times as much as the look."""

    def __init__(self, address: str, tls: ssl.SSLContext) -> None:
        self.address = address
        self._connection = http.client.HTTPSConnection(address, timeout=PATIENCE, context=tls)

    def get(self, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Return the status and the text of an answer; status 0 if the server had closed the
        connection since its last use. Any other failure is raised."""
        was_used = self._connection.sock is not None
        try:
            answer = self._answer(path, headers)
            return answer.status, answer.read().decode()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self._connection.close()
            if was_used:
                return 0, ""
            raise urllib.error.URLError(error) from error
        except BaseException:
            self._connection.close()
            raise

    def _answer(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        try:
            self._connection.request("GET", path, headers=headers)
        except ConnectionRefusedError as error:
            raise urllib.error.URLError(error) from error
        return self._connection.getresponse()

    def __del__(self) -> None:
        self._connection.close()


class Api:
    """The bare API, for arranging what a test needs and for looking behind a client's back."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self.url: str = cluster["server"]
        self.token: str = user["token"]
        self.ca_pem = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=self.ca_pem)
        # A thread that ends closes its connection.
        self._of_thread = threading.local()

    def stranger(self) -> "Api":
        """The same server for somebody whom it does not know."""
        unknown = copy.copy(self)
        unknown.token = ""
        return unknown

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> urllib.request.Request:
        content = {k.replace("_", "-"): v for k, v in headers.items()}
        content.setdefault("Content-Type", "application/json")
        if self.token:
            content["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(self.url + path, data, content, method=method)

    def open(self, request: urllib.request.Request, timeout: float = PATIENCE) -> Any:
        try:
            return urllib.request.urlopen(request, timeout=timeout, context=self._tls)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            raise refusal(error.code, text) from None

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Json:
        with self.open(self.request(method, path, body, **headers)) as answer:
            document: Json = json.loads(answer.read())
        return document

    def get(self, path: str) -> Json:
        request = self.request("GET", path)
        code, text = self._kept().get(path, dict(request.header_items()))
        if code >= 400:
            raise refusal(code, text)
        document: Json = json.loads(text) if code == 200 else self("GET", path)
        return document

    def _kept(self) -> KeptConnection:
        kept: KeptConnection | None = getattr(self._of_thread, "kept", None)
        address = self.url.removeprefix("https://")
        if kept is None or kept.address != address:
            # A server that was started again may have another port.
            kept = self._of_thread.kept = KeptConnection(address, self._tls)
        return kept

    def create(self, path: str, document: Json) -> Json:
        return self("POST", path, document)

    def merge(self, path: str, patch: Json) -> Json:
        return self("PATCH", path, patch, Content_Type="application/merge-patch+json")

    def delete(self, path: str, options: Json | None = None) -> Json:
        return self("DELETE", path, options)

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except Refused as refused:
            if refused.code == 404:
                return False
            raise
        return True

    def serves(self, path: str) -> bool:
        """Whether this can be read now."""
        try:
            self.get(path)
        except Refused:
            return False
        return True


class Cluster:
    """A running cluster, and a home directory for those who use it."""

    def __init__(self, home: Path, kubeconfig: Path) -> None:
        self.home = home
        self.kubeconfig = kubeconfig
        self.api = Api(kubeconfig)
        self.environment = private_environment(home) | {"KUBECONFIG": str(kubeconfig)}


class OwnCluster:
    """A cluster of the suite's own, started and stopped by the real commands."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.name = f"e2e-{uuid.uuid4().hex[:8]}"
        self.state = home / "state"
        self.kubeconfig = home / "kubeconfig"
        self.which = (f"--name={self.name}", f"--state={self.state}")

    def kedge(self, *arguments: str) -> str:
        return ok(self._run(*arguments))

    def fails(self, *arguments: str, code: int = 1) -> str:
        """Return the error of kedge when it fails."""
        done = self._run(*arguments)
        assert done.returncode == code, done.stdout
        return done.stderr

    def _run(self, *arguments: str) -> Outcome:
        return subprocess.run(
            [sys.executable, "-m", "kedge", *arguments],
            env=private_environment(self.home),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def up(self, *flags: str) -> Cluster:
        """Without nodes, unless the flags say how many: most tests are about the API."""
        where = ("--port=0", f"--kubeconfig={self.kubeconfig}", "--nodes=0")
        self.kedge("up", *self.which, *where, *flags)
        return Cluster(self.home, self.kubeconfig)

    def pid(self) -> int:
        pid: int = json.loads(self.kedge("status", *self.which, "-o=json"))["pid"]
        return pid

    def kill(self) -> None:
        """Kill the server as a power failure would, and its parent, which would restart it."""
        pid = self.pid()
        if parent := process.running(self.state, "restarter"):
            os.kill(parent.pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: process.birth(pid) == "")

    def down(self) -> None:
        """Stop it; nothing of it may be left."""
        pid = self.pid()
        self.kedge("down", *self.which, "--purge", "--yes")
        assert not self.state.exists()
        assert not self.kubeconfig.exists()
        assert process.birth(pid) == ""
        assert self.name not in self.kedge("list")


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[OwnCluster]:
    """A cluster that the test may do with as it likes; it starts it, and it is taken down."""
    own = OwnCluster(tmp_path)
    yield own
    own.kedge("down", *own.which, "--purge", "--yes")


class Clusters:
    """How clusters are had, for directories that want theirs otherwise."""

    given = Cluster
    own = OwnCluster


@pytest.fixture(scope="session")
def own_clusters() -> type[Clusters]:
    return Clusters


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    given = os.environ.get("KEDGE_E2E_KUBECONFIG")
    if given:
        yield Cluster(home, Path(given))
        return
    own = OwnCluster(home)
    yield own.up()
    own.down()


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Api:
    return cluster.api


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A fresh namespace; its name is also a good name for what lives outside namespaces."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    if api.exists(f"/api/v1/namespaces/{name}"):
        api.delete(f"/api/v1/namespaces/{name}")


Row = dict[str, str]


def table(text: str) -> list[Row]:
    """What kubectl printed in columns, one row by column heading each."""
    heading, *lines = text.splitlines()
    starts = [found.start() for found in re.finditer(r"(?<!\S)(?<!\S )\S", heading)]
    bounds = list(zip(starts, [*starts[1:], None], strict=True))
    names = [heading[a:b].strip() for a, b in bounds]
    return [dict(zip(names, [x[a:b].strip() for a, b in bounds], strict=True)) for x in lines]


class Lines:
    """What a running command prints, line by line."""

    def __init__(self, command: "subprocess.Popen[str]") -> None:
        self.command = command
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.command.stdout is not None
        # The end of `with Popen` may close the pipe while this thread reads.
        with suppress(ValueError):
            for line in self.command.stdout:
                self._lines.put(line.rstrip("\n"))

    def next(self, within: float = PATIENCE) -> str:
        try:
            return self._lines.get(timeout=within)
        except Empty:
            raise AssertionError(f"nothing was printed within {within:g} s") from None

    def until(self, text: str) -> str:
        """The next line with this text in it."""
        while text not in (line := self.next()):
            pass
        return line

    def rest(self) -> list[str]:
        """All that is printed until the command ends."""
        self.command.wait(PATIENCE)
        time.sleep(0.05)
        return [self._lines.get() for _ in range(self._lines.qsize())]


class Kubectl:
    """A kubectl of some version, at work in one namespace.

    One argument is a command line, split as a shell does; several are taken as they are.
    """

    def __init__(self, program: str, cluster: Cluster, namespace: str) -> None:
        self.program = program
        self.cluster = cluster
        self.namespace = namespace
        self.environment = dict(cluster.environment)
        self.server = ""
        """The server to use, if the cluster has several."""

    def command(self, arguments: tuple[str, ...]) -> list[str]:
        words = shlex.split(arguments[0]) if len(arguments) == 1 else list(arguments)
        server = [f"--server={self.server}"] if self.server else []
        return [self.program, f"--namespace={self.namespace}", *server, *words]

    def __call__(self, *arguments: str, input: str | None = None, check: bool = True) -> Outcome:
        done = subprocess.run(
            self.command(arguments),
            input=input,
            env=self.environment,
            cwd=self.cluster.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check:
            said = f"{shlex.join(done.args)}\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, said
        return done

    def fails(self, *arguments: str, input: str | None = None, code: int = 1) -> str:
        """What kubectl complains about."""
        done = self(*arguments, input=input, check=False)
        assert done.returncode == code, f"{shlex.join(done.args)}\n{done.stdout}{done.stderr}"
        return done.stderr

    def says(self, *arguments: str, input: str | None = None) -> str:
        return self(*arguments, input=input).stdout.strip()

    def json(self, *arguments: str, input: str | None = None) -> Json:
        words = shlex.split(arguments[0]) if len(arguments) == 1 else list(arguments)
        document: Json = json.loads(self(*words, "-o=json", input=input).stdout)
        return document

    def table(self, *arguments: str) -> list[Row]:
        return table(self(*arguments).stdout)

    @contextmanager
    def start(self, *arguments: str) -> Iterator[Lines]:
        """Run a command that goes on, and end it."""
        with subprocess.Popen(
            self.command(arguments),
            env=self.environment,
            cwd=self.cluster.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as command:
            try:
                yield Lines(command)
            finally:
                command.terminate()


@functools.cache
def kubectls() -> dict[str, str]:
    """Every kubectl at hand, by version: the one on the PATH and those of KEDGE_KUBECTLS."""
    named = os.environ.get("KEDGE_KUBECTLS", "").split(":")
    found: dict[str, str] = {}
    for program in filter(None, [shutil.which("kubectl"), *named]):
        told = subprocess.check_output([program, "version", "--client", "-o=json"], text=True)
        version = json.loads(told)["clientVersion"]["gitVersion"]
        found.setdefault(f"kubectl-{version}", program)
    return found


NO_KUBECTL = "this machine has no kubectl: 'tools/setup kubectl' says how to get one"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kubectl" in metafunc.fixturenames:
        metafunc.parametrize("kubectl", list(kubectls()) or ["none"], indirect=True)


@pytest.fixture
def kubectl(request: pytest.FixtureRequest, cluster: Cluster, namespace: str) -> Kubectl:
    """Each kubectl in its turn."""
    if request.param == "none":
        pytest.skip(NO_KUBECTL)
    return Kubectl(kubectls()[request.param], cluster, namespace)


@pytest.fixture
def any_kubectl(cluster: Cluster, namespace: str) -> Kubectl:
    """The newest kubectl, where the server is on trial and one client is enough."""
    if not kubectls():
        pytest.skip(NO_KUBECTL)

    def age(version: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", version)]

    return Kubectl(kubectls()[max(kubectls(), key=age)], cluster, namespace)


# Attacks: servers that are attacked, and other clients that use them meanwhile.


class Target(NamedTuple):
    """A server that speaks TLS."""

    host: str
    port: int
    ca_pem: str
    token: str
    pid: int

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), PATIENCE)

    def secure(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.ca_pem)
        return context.wrap_socket(self.connect(), server_hostname=self.host)

    def head(self, request_line: str, *fields: str, token: str = "") -> bytes:
        lines = [f"{request_line} HTTP/1.1", "Host: x", *fields]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        return "\r\n".join([*lines, "", ""]).encode()

    @property
    def memory(self) -> int:
        """Bytes of memory that the server has ever held at once."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024


def read_head(peer: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status and header of the next answer, and what has come of its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = peer.recv(1 << 16)
        if not piece:
            raise ConnectionError("no answer")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


_FEWEST_ANSWERS = 5


class Bystander:
    """Sends small requests all the time, on one connection and now and then on a new one.
    `slowest` is the longest wait for an answer."""

    def __init__(self, target: Target, path: str) -> None:
        self._target = target
        self._request = target.head(f"GET {path}", token=target.token)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.kept: list[float] = []
        self.fresh: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> "Bystander":
        self._connection = self._target.secure()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(3 * PATIENCE)
        self._connection.close()

    def await_answer(self) -> None:
        """Wait for the answer to the request that is under way, or for a failure."""
        seen = len(self.kept)
        eventually(lambda: len(self.kept) > seen or self.failures, 3 * PATIENCE)

    def _run(self) -> None:
        # An attack may be over before this has begun: the server must then answer right after it.
        while not self._over.is_set() or len(self.kept) < _FEWEST_ANSWERS:
            try:
                self.kept.append(self._timed(self._connection))
                start = time.perf_counter()
                with self._target.secure() as connection:
                    self._timed(connection)
                self.fresh.append(time.perf_counter() - start)
            except OSError as error:
                self.failures.append(repr(error))
                return
            self._over.wait(0.05)

    def _timed(self, connection: ssl.SSLSocket) -> float:
        start = time.perf_counter()
        connection.sendall(self._request)
        status, fields, body = read_head(connection)
        assert status == 200
        left = int(fields["content-length"]) - len(body)
        while left > 0:
            left -= len(connection.recv(left))
        return time.perf_counter() - start


class Attacks:
    """What the tests of this directory use."""

    target = Target
    bystander = Bystander
    read_head = staticmethod(read_head)


@pytest.fixture(scope="session")
def attacks() -> type[Attacks]:
    return Attacks
