"""The composition root: a configuration in, a running cluster out."""

import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from kedge.cli import process, registry, server, state
from kedge.cli.announcement import Announcement, decode
from kedge.cli.down import withdraw_context
from kedge.cli.failure import Failure
from kedge.cli.up import Say, Up, UpConfig, context
from kedge.client import kubeconfig
from kedge.machinery.clock import SystemClock

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig

_LOG_LINES: Final = 10
_LOG_LIMIT: Final = 10 * 2**20


def background(config: UpConfig, say: Say) -> Up:
    """Start the cluster in the background, unless it runs."""
    directory = config.server.state
    cluster = prepare(config, say)
    with state.changing(directory):
        if process.running(directory):
            return _as_it_runs(directory)
        started = SystemClock().monotonic()
        settings = settle_port(config, cluster, say)
        say(f'Starting cluster "{cluster.name}" in {directory} ...')
        child, announced = launch(settings, config.wait)
        try:
            done = adopt(config, announced)
        except BaseException:
            _end(child)
            raise
        # The child outlives us: nothing is to wait for it, or to complain that nothing did.
        child.returncode = 0
        say(f"API server ready at {done.url} ({SystemClock().monotonic() - started:.2f} s).")
    return done


def foreground(config: UpConfig, say: Say) -> Up | None:
    """Run the cluster until it is told to end, and undo what was done; None, unless it runs."""
    directory = config.server.state
    cluster = prepare(config, say)
    if process.running(directory):
        return _as_it_runs(directory)
    settings = settle_port(config, cluster, say)
    adopted = False

    def announce(ready: Announcement) -> None:
        nonlocal adopted
        done = adopt(config, ready)
        adopted = True
        say(f'API server of cluster "{cluster.name}" ready at {done.url}; Ctrl-C stops it.')
        say(f'Context "{context(cluster.name)}" is the current one in {done.kubeconfig}.')

    try:
        server.run(settings, announce)
    finally:
        if adopted:
            withdraw_context(directory, config.root)
    return None


def prepare(config: UpConfig, say: Say) -> state.Cluster:
    """See that nothing will be in the way, then make the cluster's directory."""
    name, directory = config.server.name, config.server.state
    try:
        kubeconfig.check(config.kubeconfig)
    except kubeconfig.Unusable as error:
        raise Failure(str(error)) from error
    registry.check_free(config.root, name, directory)
    cluster = state.prepare(directory, name)
    try:
        registry.register(config.root, name, directory)
    except OSError as error:
        say(
            f"warning: 'kedge list' will not show this cluster: cannot write to {config.root}:"
            f" {error.strerror}. Stop it with 'kedge down --state {directory}'."
        )
    return cluster


def settle_port(config: UpConfig, cluster: state.Cluster, say: Say) -> "ServerConfig":
    """The server's configuration with the port it is to have: as asked, as before, or any."""
    asked = config.server
    if config.port_given or not cluster.port:
        return asked
    if port_is_free(asked.host, cluster.port):
        return msgspec.structs.replace(asked, port=cluster.port)
    say(f"Port {cluster.port}, which the cluster had before, is in use: taking another one.")
    return asked


def port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def launch(
    settings: "ServerConfig", patience: float
) -> tuple[subprocess.Popen[bytes], Announcement]:
    """Start a server that outlives this process, and wait until it answers."""
    log = settings.state / "server.log"
    began = _make_room(log)
    reading, writing = os.pipe()
    with open(log, "ab", opener=_private) as output, open(reading, "rb", buffering=0) as pipe:
        child = subprocess.Popen(
            [*_program(), *server.arguments(settings), f"--ready-fd={writing}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            line = _read_line(pipe.fileno(), patience)
        except TimeoutError:
            _end(child)
            raise Failure(
                f"the server was not ready within {patience:g} s: {log} may say why; allow more"
                " time with --wait"
            ) from None
        except BaseException:
            _end(child)
            raise
    if not line:
        raise _died(child.wait(), log, began)
    return child, decode(line)


def _program() -> list[str]:
    # -P: nothing that lies about in the working directory is to be taken for a module.
    return [sys.executable, "-P", "-m", "kedge", server.NAME]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _make_room(log: Path) -> int:
    """Set a log that has grown large aside; returns how much there is of it."""
    size = log.stat().st_size if log.exists() else 0
    if size < _LOG_LIMIT:
        return size
    log.replace(log.with_name(f"{log.name}.1"))
    return 0


def _read_line(descriptor: int, patience: float) -> bytes:
    """What the other end of the pipe writes, up to the end of the line; empty if it hangs up."""
    clock = SystemClock()
    deadline = clock.monotonic() + patience
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - clock.monotonic()))
        if not ready:
            raise TimeoutError
        part = os.read(descriptor, 65536)
        if not part:
            return b""
        line += part
    return line


def _died(code: int, log: Path, began: int) -> Failure:
    """Why a server that was being started is no more: its own explanation, else its last words."""
    lines = log.read_bytes()[began:].decode(errors="replace").splitlines()
    explained = [line for line in lines[-_LOG_LINES:] if line.startswith("error: ")]
    if explained:
        return Failure(explained[-1].removeprefix("error: "))
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    last_words = "\n".join(f"  {line}" for line in lines[-_LOG_LINES:]) or "  (it said nothing)"
    return Failure(f"the server ended {how} before it was ready. The end of {log}:\n{last_words}")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def adopt(config: UpConfig, announced: Announcement) -> Up:
    """Point kubectl at the cluster, and remember how things were before."""
    directory = config.server.state
    cluster = _remembered(directory)
    if cluster.kubeconfig not in ("", str(config.kubeconfig)):
        # A server that was killed has left its context in another file.
        withdraw_context(directory, config.root)
        cluster = _remembered(directory)
    access = kubeconfig.Access(
        context(cluster.name), announced.url, announced.ca_pem, announced.token
    )
    try:
        before = kubeconfig.merge(config.kubeconfig, access)
    except kubeconfig.Unusable as error:
        raise Failure(str(error)) from error
    cluster = msgspec.structs.replace(
        cluster,
        port=urlsplit(announced.url).port or 0,
        kubeconfig=str(config.kubeconfig),
        previous_context=before.context or cluster.previous_context,
        kubeconfig_existed=before.existed and cluster.kubeconfig_existed,
    )
    state.write(directory, cluster)
    return Up(announced.url, cluster.kubeconfig, before.context, was_running=False)


def _remembered(directory: Path) -> state.Cluster:
    cluster = state.read(directory)
    if cluster is None:
        raise Failure(f"{directory} was removed while the cluster was being started")
    return cluster


def _as_it_runs(directory: Path) -> Up:
    known = state.read_server(directory)
    url = known.url if known else "an address that is not known yet"
    return Up(url, _remembered(directory).kubeconfig, "", was_running=True)
