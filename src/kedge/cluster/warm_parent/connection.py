"""The side of the test process: starts the warm parent on first use, and asks it for clusters."""

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

import kedge
from kedge.cluster.errors import ClusterError
from kedge.cluster.warm_parent.message import (
    ClusterAnswer,
    ClusterEnd,
    ClusterRequest,
    KeepRequest,
    MessageSocket,
)

_START: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from kedge.cluster.warm_parent.process import main; main(int(sys.argv[2]))"
)
_END_SECONDS: Final = 10.0
"""How long the warm parent may take to end, while it imports modules for example."""
_PACKAGES: Final = str(Path(kedge.__file__).parents[1])


class WarmParent:
    """The warm parent of this process: at most one, started when the first cluster is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def connect(self) -> MessageSocket:
        """Return a connection to a new keeper."""
        with self._lock:
            if (
                self._owner != os.getpid()
                or self._process is None
                or self._process.poll() is not None
            ):
                self._start()
            assert self._control is not None
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(self._control, [b"\n"], [theirs.fileno()])
        return MessageSocket(ours)

    def close(self) -> None:
        """Let the warm parent end; clusters that are open go on."""
        with self._lock:
            process, self._process = self._process, None
            if process is None or self._owner != os.getpid():
                return
            assert self._control is not None
            with self._control as control, contextlib.suppress(OSError):
                # Not only closed: a fork of this process may have the socket, too.
                control.shutdown(socket.SHUT_RDWR)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        self._owner = os.getpid()
        # Not a finalizer: the interpreter would warn of a process that still runs.
        atexit.register(self.close)
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, _PACKAGES, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Ctrl-C is for the test process, which closes its clusters.
                start_new_session=True,
            )


WARM_PARENT: Final = WarmParent()


class KeptCluster:
    """A running cluster and the connection that keeps it."""

    def __init__(self, messages: MessageSocket, answer: ClusterAnswer) -> None:
        self._messages: MessageSocket | None = messages
        self.answer = answer

    def keep(self) -> None:
        """Let the cluster run after this process ends."""
        messages, self._messages = self._messages, None
        if messages is not None:
            with messages.connected:
                messages.send(KeepRequest())

    def close(self) -> None:
        """End the cluster; returns when nothing of it is left."""
        messages, self._messages = self._messages, None
        if messages is None:
            return
        with messages.connected as connected:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_WR)
            line = messages.line()
        if line and (problems := msgspec.json.decode(line, type=ClusterEnd).problems):
            raise ClusterError(f"the cluster was not removed completely: {problems}")


def start(
    arguments: Sequence[str], *, state: str = "", kubeconfig: str = "", objects: bytes = b""
) -> KeptCluster:
    """Start a cluster with these flags of `kedge up`; returns when it is ready. `objects` are those
    of another cluster, with which it begins."""
    with _file_with(objects) as file:
        return _start(arguments, state, kubeconfig, file)


@contextlib.contextmanager
def _file_with(content: bytes) -> Iterator[str]:
    """Open a file with the content; yields its name, which is empty if there is no content."""
    if not content:
        yield ""
        return
    with tempfile.NamedTemporaryFile(prefix="kedge-objects-") as file:
        file.write(content)
        file.flush()
        yield file.name


def _start(arguments: Sequence[str], state: str, kubeconfig: str, objects: str) -> KeptCluster:
    messages = WARM_PARENT.connect()
    request = ClusterRequest(
        arguments=arguments,
        state=state,
        kubeconfig=kubeconfig,
        objects=objects,
        directory=os.getcwd(),
        environment=dict(os.environ),
    )
    try:
        messages.send(request)
        line = messages.line()
    except BaseException:
        messages.connected.close()
        raise
    if not line:
        messages.connected.close()
        raise ClusterError(
            "the process that starts clusters has ended: its message is on standard error"
        )
    kept = KeptCluster(messages, msgspec.json.decode(line, type=ClusterAnswer))
    if kept.answer.error:
        kept.close()
        raise ClusterError(kept.answer.error)
    return kept
