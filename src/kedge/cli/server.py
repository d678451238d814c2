"""`kedge server`: one API server in the foreground."""

import gc
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kedge.cli import flags

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig
    from kedge.cli import state
    from kedge.cli.announcement import Announcement

NAME: Final = "server"
HELP: Final = "Run an API server in the foreground"
DESCRIPTION: Final = """\
Run the API server of one cluster in the foreground, until SIGTERM or SIGINT.

It enforces the admission plugins that are named and no others (NamespaceLifecycle, if none is
named), and leaves your kubeconfig alone:
how to reach it is written to the file "kubeconfig" in its directory."""
EXAMPLES: Final = """\
  # A server on port 6443 of this machine
  kedge server

  # One that other machines can reach as box.example.com
  kedge server --host 0.0.0.0 --cert-hosts box.example.com

  # One that forgets everything when it ends
  kedge server --name scratch --port 0 --store memory"""


def add_flags(parser: ArgumentParser) -> None:
    flags.add_which(parser)
    flags.add_server(parser, port="6443", admission="NamespaceLifecycle")
    parser.add_argument(
        "--metrics-resolution",
        type=flags.resolution_seconds,
        metavar="DURATION",
        help="how often kubelets are read, from 10s on (default: $KEDGE_METRICS_RESOLUTION,"
        " else 15s)",
    )
    parser.add_argument(
        "--local-nodes",
        type=flags.nodes,
        metavar="NAME=ADDRESS,...",
        help="nodes to make certificates for, which run beside the server in --state"
        " (default: $KEDGE_LOCAL_NODES)",
    )
    parser.add_argument(
        "--ready-fd",
        type=int,
        metavar="N",
        help="when ready, write one line of JSON (url, caPem, token) to this file descriptor"
        " instead of saying so",
    )


def arguments(config: "ServerConfig") -> list[str]:
    """The flags that make `kedge server` run with this very configuration."""
    return [
        f"--name={config.name}",
        f"--state={config.state}",
        f"--host={config.host}",
        f"--port={config.port}",
        f"--cert-hosts={','.join(config.hosts)}",
        f"--local-nodes={','.join(f'{name}={at}' for name, at in config.local_nodes.items())}",
        f"--store={config.store}",
        f"--admission-control={','.join(config.admission)}",
        "--upstream-only" if config.upstream_only else "--no-upstream-only",
        f"--scheduler-usage={'on' if config.scheduler_usage else 'off'}",
        f"--token-auth-file={config.token_auth_file or ''}",
        f"--audit-log-path={config.audit_log or ''}",
        f"--metrics-window={config.metrics_window}",
        "--scrape-kubelets" if config.scrape_kubelets else "--no-scrape-kubelets",
        f"--metrics-resolution={config.scrape_seconds}s",
        f"--kubelet-certificate-authority={config.kubelets.authority or ''}",
        "--kubelet-insecure-tls" if config.kubelets.anybody else "--no-kubelet-insecure-tls",
        f"--max-requests-inflight={config.max_requests_inflight}",
        f"--max-mutating-requests-inflight={config.max_mutating_requests_inflight}",
        f"--controllers={','.join(config.controllers)}",
        f"--node-monitor-grace-period={config.node_grace}s",
    ]


def run(
    config: "ServerConfig",
    announce: Callable[["Announcement"], None],
    check: Callable[[], None] = lambda: None,
) -> int:
    """Run the server until a signal ends it; `announce` is called once it answers, `check`
    raises if the starter is gone."""
    # Nothing that is imported or loaded now is garbage; the control plane turns this on again.
    gc.disable()
    from kedge import control_plane
    from kedge.apiserver.server import Running
    from kedge.apiserver.startup import explain, innermost, is_permanent
    from kedge.cli import integrity, process, state
    from kedge.cli.announcement import Announcement
    from kedge.cli.failure import Failure, PermanentFailure, TemporaryFailure

    check()
    cluster = state.prepare(config.state, config.name)
    process.claim(config.state)
    check()
    try:
        notes = integrity.check(config.state, cluster, database=config.store == "sqlite")
    except Failure as failure:
        # The administrator has to restore a file; a retry would fail too.
        raise PermanentFailure(str(failure)) from failure
    for note in notes:
        print(f"warning: {note}", file=sys.stderr, flush=True)
    # A server lives long: it must not keep the file system busy that it was started from.
    os.chdir(config.state)

    def on_ready(ready: Running) -> None:
        integrity.record_files(config.state, database=config.store == "sqlite")
        state.write_server(config.state, _record(config, ready.url))
        announce(Announcement(ready.url, ready.ca_pem, ready.token))

    try:
        control_plane.run(config, on_ready)
    except Exception as error:
        cause = innermost(error)
        if explanation := explain(cause, config):
            kind = PermanentFailure if is_permanent(cause) else TemporaryFailure
            raise kind(explanation) from error
        raise cause from None
    return 0


def _record(config: "ServerConfig", url: str) -> "state.Server":
    from kedge import __version__
    from kedge.cli import state
    from kedge.controllers.names import disabled
    from kedge.machinery.clock import SystemClock

    return state.Server(
        pid=os.getpid(),
        url=url,
        version=__version__,
        started=SystemClock().now(),
        store=config.store,
        admission=config.admission,
        upstream_only=config.upstream_only,
        disabled_controllers=disabled(config.controllers),
    )


def tell(descriptor: int) -> Callable[["Announcement"], None]:
    """Announce to a program that waits at the other end of a pipe."""

    def announce(ready: "Announcement") -> None:
        from kedge.cli import announcement

        announcement.say(descriptor, announcement.encode(ready))

    return announce


def say(config: "ServerConfig") -> Callable[["Announcement"], None]:
    """Announce to the person in front of the terminal, with a kubeconfig for them."""

    def announce(ready: "Announcement") -> None:
        from kedge.client import kubeconfig

        path = config.state / "kubeconfig"
        access = kubeconfig.ClusterAccess(config.name, ready.url, ready.ca_pem, ready.token)
        kubeconfig.merge(path, access)
        print(
            f'The API server of cluster "{config.name}" is ready at {ready.url}.\n'
            f"Reach it with: kubectl --kubeconfig {path} get namespaces",
            file=sys.stderr,
            flush=True,
        )

    return announce
