"""`kedge top` in a terminal: driven by keys in tmux, read from its screen."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import terminal_picture

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Cluster

Json = dict[str, Any]

PICTURES = os.environ.get("KEDGE_TERMINAL_PICTURES", "")
"""Where to write the pictures of the documentation."""
PICTURE_SECONDS = 70
"""Until there is a minute to be seen."""
SPACE = "webshop"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
SPIN = "while :; do :; done"
TALK = r"""i=0; while :; do i=$((i+1)); printf 'order %s \033[31mpaid\033[0m\033]0;mine\007\n' $i
sleep 0.2; done"""
KEEP = """
import time
kept = []
while True:
    kept = [] if len(kept) > 9 else [*kept, bytearray(b"x") * 6_000_000]
    sum(range(2_000_000)); time.sleep(2)
"""

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux: tools/setup tmux")


def container(name: str, *command: str, **resources: Json) -> Json:
    return {"name": name, "image": "host", "command": [*command], "resources": resources}


FRONTEND = container(
    "main",
    "sh",
    "-c",
    SPIN,
    requests={"cpu": "100m", "memory": "16Mi"},
    limits={"cpu": "200m", "memory": "64Mi"},
)
DATABASE = container(
    "main",
    "python3",
    "-c",
    KEEP,
    requests={"cpu": "50m", "memory": "32Mi"},
    limits={"cpu": "500m", "memory": "96Mi"},
)
BACKUP = container("backup", "sleep", "1000", requests={"cpu": "10m"}, limits={"memory": "32Mi"})
ORDERS = container("main", "sh", "-c", TALK, requests={"cpu": "20m", "memory": "8Mi"})
HUGE = container("main", "sleep", "1", requests={"cpu": "500"})
SPECS: dict[str, list[Json]] = {
    "database": [DATABASE, BACKUP],
    "frontend": [FRONTEND],
    "huge": [HUGE],
    "orders": [ORDERS],
}


@pytest.fixture(scope="module")
def shop(api: Api, eventually: Callable[..., Any]) -> Iterator[None]:
    """Pods whose usage has been reported, and one that waits for a node."""
    api.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
    for name, containers in SPECS.items():
        spec = {"containers": containers, "terminationGracePeriodSeconds": 0}
        api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    usage = f"/apis/metrics/v1alpha1/namespaces/{SPACE}/pods"
    eventually(lambda: len(api.get(usage)["items"]) == 3, 30)
    yield
    api.delete(f"/api/v1/namespaces/{SPACE}")


class Terminal:
    """A shell in a terminal of tmux."""

    def __init__(self, home: Path, environment: dict[str, str], until: Callable[..., Any]) -> None:
        self._socket = home / "tmux"
        self._environment = {**environment, "LANG": "C.UTF-8", "PS1": "ready> ", "TERM": "xterm"}
        self._until = until
        kedge = shlex.join([sys.executable, "-m", "kedge"])
        start = ["new-session", "-d", "-x", "130", "-y", "26", "bash", "--norc", "--noprofile"]
        self.tmux("-f", "/dev/null", *start)
        self.press(f'kedge() {{ {kedge} "$@"; }}; clear', "Enter")

    def tmux(self, *arguments: str) -> str:
        run = ["tmux", "-S", str(self._socket), *arguments]
        done = subprocess.run(
            run, env=self._environment, capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def run(self, command: str) -> None:
        """Run a command line in the shell."""
        self.type(command)
        self.press("Enter")

    @property
    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def until(self, *parts: str) -> str:
        """Return the screen when it contains all these texts."""
        last = ""

        def found() -> bool:
            nonlocal last
            last = self.text
            return all(part in last for part in parts)

        try:
            self._until(found, 15)
        except AssertionError:
            raise AssertionError(f"{parts} did not appear:\n{last}") from None
        return last

    def picture(self, name: str) -> None:
        """Write the screen with its colours, if pictures are wanted."""
        if PICTURES:
            drawn = terminal_picture.svg(self.tmux("capture-pane", "-e", "-p"))
            Path(PICTURES, f"{name}.svg").write_text(drawn)

    def close(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self.tmux("kill-server")


@pytest.fixture
def terminal(
    cluster: Cluster, tmp_path: Path, eventually: Callable[..., Any]
) -> Iterator[Terminal]:
    found = Terminal(tmp_path, cluster.environment, eventually)
    yield found
    found.close()


def names(screen: str, column: int = 0) -> list[str]:
    """Return one word of each line of the table."""
    rows = [line.split() for line in screen.splitlines()[3:-1]]
    return [row[column] for row in rows if row]


def test_from_a_node_to_a_container_with_sort_filter_logs_and_why(
    terminal: Terminal, shop: None
) -> None:
    terminal.run("kedge top")
    nodes = terminal.until("kedge top nodes", "node-1", "<none>", "q quit")
    assert re.search(r"node-1 +Ready +\d+ +\d\.\d\d +[━─┿┼]{10} +\d+%", nodes), nodes
    terminal.press("Enter")
    terminal.until("kedge top node-1", "frontend")
    terminal.press("/")
    terminal.type(SPACE)
    terminal.press("Enter")
    pods = terminal.until(f'3 pods with "{SPACE}"')
    assert re.search(r"frontend +Running.* [0-9.]+m? +[━─┿┼]{10} +\d+%", pods), pods
    # The node has kept the points from before the view was opened.
    terminal.until("█")
    if PICTURES:
        time.sleep(PICTURE_SECONDS)
    terminal.picture("top-pods")
    terminal.press("s", "s")
    by_memory = terminal.until("by memory", "MEM▼")
    assert names(by_memory, 1)[0] == "database"
    terminal.press("Enter")
    terminal.until("webshop/database", "backup", "cpu of main", "limit")
    terminal.picture("top-containers")
    terminal.press("3")
    terminal.until("mean of 1h", "memory of main, last 1h")
    terminal.press("Escape")
    terminal.until("by memory", "3 pods with")
    terminal.press("/")
    terminal.type(" orders")
    terminal.press("Enter")
    terminal.until('1 pod with "webshop orders"')
    terminal.press("l")
    logs = terminal.until("logs webshop/", "order ")
    assert re.search(r"^order \d+ paid$", logs, re.MULTILINE), logs
    assert "[31m" not in logs
    terminal.press("w")
    terminal.until("why webshop/orders", "Node:       node-1", "Is it slow?")
    terminal.press("q", "?")
    terminal.until("kedge top help", "Esc, Backspace")
    terminal.press("q", "q")
    terminal.run("echo code $?")
    assert "kedge top" not in terminal.until("code 0").replace("kedge top\n", "")


def test_a_pod_that_waits_tells_why(terminal: Terminal, shop: None) -> None:
    terminal.run(f"kedge top pods -n {SPACE} --sort-by name")
    screen = terminal.until("namespace webshop", "huge")
    assert names(screen) == [*SPECS]
    terminal.press("j", "j", "w")
    terminal.until("why webshop/huge", "Insufficient cpu")
    terminal.press("Escape", "q")


def test_a_resized_terminal_is_drawn_anew(terminal: Terminal, shop: None) -> None:
    terminal.run(f"NO_COLOR=1 kedge top pods -n {SPACE}")
    terminal.until("frontend", "OF LIMIT", "CPU 1M")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.tmux("capture-pane", "-e", "-p"))
    terminal.tmux("resize-window", "-x", "36", "-y", "8")
    screen = terminal.until("POD", "? help  q quit")
    assert "CPU 1M" not in screen
    assert "frontend" in screen
    terminal.tmux("resize-window", "-x", "130", "-y", "26")
    terminal.until("CPU 1M")
    terminal.press("q")


def test_the_terminal_is_restored_however_the_view_ends(terminal: Terminal, shop: None) -> None:
    terminal.run("kedge top")
    terminal.until("kedge top nodes", "node-1")
    terminal.press("C-z")
    terminal.until("ready>")
    terminal.run("stty -a | grep -o ' echo '; fg; echo code $?")
    terminal.until("kedge top nodes", "node-1")
    terminal.press("C-c")
    terminal.until("code 130")
    for signal, code in (("TERM", 143), ("HUP", 129)):
        terminal.run(
            f"clear; (sleep 2; pkill -{signal} -P $$ -f 'kedge top$') & kedge top; "
            f"echo code $?; stty -a | grep -o ' icanon '; stty -a | grep -o ' echo '"
        )
        assert "kedge top nodes" not in terminal.until(f"code {code}", " icanon", " echo")


def test_a_viewer_of_one_namespace_sees_its_pods(
    terminal: Terminal, shop: None, cluster: Cluster
) -> None:
    kubectl(cluster, "create", "serviceaccount", "viewer", "-n", SPACE)
    viewer = f"--serviceaccount={SPACE}:viewer"
    kubectl(cluster, "create", "rolebinding", "viewer", "--clusterrole=view", viewer, "-n", SPACE)
    token = kubectl(cluster, "create", "token", "viewer", "-n", SPACE).strip()
    own = cluster.home / "viewer.yaml"
    shutil.copy(cluster.kubeconfig, own)
    flags = [f"--kubeconfig={own}"]
    kubectl(cluster, "config", *flags, "set-credentials", "viewer", f"--token={token}")
    context = ["set-context", "--current", "--user=viewer", f"--namespace={SPACE}"]
    kubectl(cluster, "config", *flags, *context)
    terminal.run(f"KUBECONFIG={own} kedge top")
    screen = terminal.until("pods › namespace webshop", "You may not read nodes", "frontend")
    assert sorted(names(screen)) == [*SPECS]
    terminal.press("q")


def kubectl(cluster: Cluster, *arguments: str) -> str:
    run = ["kubectl", *arguments]
    done = subprocess.run(
        run, env=cluster.environment, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


class Relay:
    """Passes connections on to the server, until it is cut."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                ours, _ = listener.accept()
                theirs = socket.create_connection(self._address)
                self._sockets += [ours, theirs]
                for pair in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets = []

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()


def test_a_server_that_goes_away_comes_back(
    terminal: Terminal, shop: None, cluster: Cluster
) -> None:
    host, _, port = cluster.api.url.removeprefix("https://").rpartition(":")
    relay = Relay((host, int(port)))
    own = cluster.home / "relay.yaml"
    text = cluster.kubeconfig.read_text()
    own.write_text(text.replace(cluster.api.url, f"https://127.0.0.1:{relay.port}"))
    terminal.run(f"KUBECONFIG={own} kedge top pods -n {SPACE}")
    terminal.until("4 pods", "frontend", " MB")
    relay.cut()
    terminal.until("Connection lost, retrying (data of ", "frontend")
    relay.mend()
    terminal.until("4 pods", "frontend")
    terminal.press("q")
    relay.cut()
