"""`kedge run`: a command with a throw-away cluster in its environment."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli import flags
from kedge.cli.cluster.logs import keep_logs
from kedge.cli.cluster.up import command
from kedge.cli.failure import Failure, StartFailure
from kedge.cli.pods.run import command as pod_command
from kedge.settings import cluster

if TYPE_CHECKING:
    from kedge.cli.cluster.up.command import UpConfig

DESCRIPTION: Final = """\
Start a cluster, run a command with KUBECONFIG set to it, and delete the cluster. Everything after
-- is the command. kedge exits with the command's exit code. If that is not 0, the logs of the
cluster are kept, and a message says where.

The cluster has a directory and a kubeconfig of its own: your kubeconfig does not change, and
several commands can run at once. Objects are kept in memory. If kedge itself is killed (SIGKILL),
the cluster stays, and 'kedge list' shows it.

With NAME and --image the command runs a pod in the cluster of the kubeconfig, as 'kubectl run'
does; what follows -- are then the arguments of the container."""
EXAMPLES: Final = """\
  # Tests of a program that uses a cluster
  kedge run -- go test ./...

  # Without a node, which starts sooner
  kedge run --nodes 0 -- ./check.sh

  # A shell in which kubectl uses a new cluster
  kedge run -- bash

  # A pod in the cluster of the kubeconfig; a shell in one that is deleted afterwards
  kedge run web --image nginx --port 80
  kedge run -it --rm try --image host --restart Never -- sh"""

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""The exit codes of a shell for a command that does not exist or cannot be run."""
PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals that the command gets too. A terminal sends SIGINT to both itself."""


def add_flags(parser: ArgumentParser) -> None:
    parser.set_defaults(line=())
    flags.add_setting(parser, cluster.CONFIG, cluster.CONFIG.default)
    command.add_cluster_flags(parser)
    pod_command.add_flags(parser)
    parser.usage = (
        "kedge run [flags] -- COMMAND [argument ...]\n"
        "       kedge run NAME --image=IMAGE [flags] [-- argument ...]"
    )


def run(flags: Namespace) -> int:
    if flags.image:
        return pod_command.run(flags)
    pod_command.check_unused(flags)
    if not flags.line:
        raise Failure("you must specify a command, after --")
    for number in PASSED_ON:
        # The cluster is deleted even if an error or a signal ends this command.
        signal.signal(number, _exit)
    place = Path(tempfile.mkdtemp(prefix="kedge-run-")).resolve()
    is_kept = False
    try:
        config = _config(flags, place)
        with _cluster(config):
            code = execute(flags.line, {**os.environ, "KUBECONFIG": str(config.kubeconfig)})
            if code:
                is_kept = keep_logs(config.server.state, place / "logs")
    finally:
        if not is_kept:
            shutil.rmtree(place, ignore_errors=True)
    if is_kept:
        print(f"The logs of the cluster are in {place / 'logs'}.", file=sys.stderr)
    return code


def _config(flags: Namespace, place: Path) -> "UpConfig":
    """Return the configuration of a cluster that has everything to itself."""
    from kedge.cli.config.settings import Settings
    from kedge.cli.config.up import up_config

    # The name is in the list of clusters until the end, for people who look for a killed run.
    flags.name = f"run-{os.getpid()}"
    flags.state = place / "state"
    flags.kubeconfig = place / "kubeconfig"
    flags.restart = "never"
    if flags.store is None:
        flags.store = "memory"
    if flags.device_plugin_dir is None:
        # Only one node of a machine can have the directory of Kubernetes.
        flags.device_plugin_dir = flags.state / "nodes" / "node-1" / "kubelet" / "device-plugins"
    return up_config(Settings(flags))


@contextlib.contextmanager
def _cluster(config: "UpConfig") -> Iterator[None]:
    """Run the cluster while the context is open."""
    from kedge.cli.cluster import registry
    from kedge.cli.cluster.down import take_down
    from kedge.cli.cluster.registry import ClusterLocation
    from kedge.cli.cluster.up.start import background

    try:
        try:
            background(config, _discard)
        except Failure as failure:
            # Not a code that the command could have ended with.
            raise StartFailure(str(failure)) from failure
        yield
    finally:
        where = ClusterLocation(config.root, config.server.name, config.server.state)
        if found := registry.find(where):
            take_down(found, config.root, purge=True)


def execute(line: Sequence[str], environment: dict[str, str]) -> int:
    """Run the command; returns its exit code as a shell would."""
    try:
        child = subprocess.Popen(line, env=environment)
    except FileNotFoundError:
        print(f"error: {line[0]}: command not found", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"error: {line[0]}: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE
    with _signals_for(child):
        code = child.wait()
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _signals_for(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Pass signals on to the command, whose end is then waited for."""

    def pass_on(number: int, _: object) -> None:
        child.send_signal(number)

    before = {each: signal.signal(each, pass_on) for each in PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _exit(number: int, _: object) -> None:
    sys.exit(128 + number)


def _discard(_: str) -> None:
    """Discard a message of the start: the output is that of the command."""
