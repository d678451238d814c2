"""`kedge server`: one API server in the foreground."""

import gc
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kedge.cli import flags
from kedge.controllers import names
from kedge.settings.setting import BoundSetting, arguments, bound_settings

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig
    from kedge.cli.cluster import state
    from kedge.cli.cluster.announcement import Announcement

NAME: Final = "server"
DESCRIPTION: Final = """\
Run the API server of one cluster in the foreground, until SIGTERM or SIGINT.

Unlike 'kedge up', it enforces only NamespaceLifecycle unless admission plugins are named, and does
not change your kubeconfig: it writes the file "kubeconfig" in its directory."""
EXAMPLES: Final = """\
  # A server on port 6443 of this machine
  kedge server

  # One that other machines can reach as box.example.com
  kedge server --host 0.0.0.0 --cert-hosts box.example.com

  # One whose objects are lost when it ends
  kedge server --name scratch --port 0 --store memory"""

KEYS_SECONDS: Final = 30.0
"""How long one of several servers waits for the keys of the first one."""
CONTROLLERS: Final = f"; the names are {', '.join(names.ALL)}"
"""The end of the help of --controllers."""


def add_flags(parser: ArgumentParser) -> None:
    from kedge.apiserver.config import SERVER_ADMISSION

    flags.add_which(parser)
    flags.add_settings(
        parser,
        settings(),
        {"admission-control": ",".join(SERVER_ADMISSION)},
        {"controllers": CONTROLLERS},
    )
    parser.add_argument(
        "--ready-fd",
        type=int,
        metavar="N",
        help="when ready, write one line of JSON (url, caPem, token) to this file descriptor"
        " instead of printing a message",
    )


def settings() -> list[BoundSetting]:
    """Return the settings of a server besides those that say which cluster it is of."""
    from kedge.apiserver.config import ServerConfig

    return [each for each in bound_settings(ServerConfig) if each.field not in ("name", "state")]


def child_arguments(config: "ServerConfig") -> list[str]:
    """Return the flags that make `kedge server` run with this very configuration."""
    return ["--config=", *arguments(config)]


def run(flags: Namespace) -> int:
    from kedge.cli.cluster.announcement import check_reader
    from kedge.cli.config.server import server_config
    from kedge.cli.config.settings import Settings

    config = server_config(Settings(flags))
    announce = say(config) if flags.ready_fd is None else tell(flags.ready_fd)
    return serve(config, announce, check_reader(flags.ready_fd))


def serve(
    config: "ServerConfig",
    announce: Callable[["Announcement"], None],
    check: Callable[[], None] = lambda: None,
) -> int:
    """Run the server until a signal ends it; `announce` is called once it answers, `check`
    raises if the starter is gone."""
    # Nothing that is imported or loaded now is garbage; the control plane turns this on again.
    gc.disable()
    from kedge import control_plane
    from kedge.apiserver.server import ApiServer
    from kedge.apiserver.startup import explain, innermost, is_permanent
    from kedge.cli.cluster import integrity, process, server_parts, state
    from kedge.cli.cluster.announcement import Announcement
    from kedge.cli.failure import PermanentFailure, TemporaryFailure
    from kedge.gateway.listening import PortUnavailable

    check()
    try:
        state.check_owner(config.state)
        integrity.check_types(config.state)
        cluster = state.prepare(config.state, config.name)
        part = server_parts.part_of(config.replica)
        process.claim(config.state, part)
        check()
        notes = integrity.check(config.state, cluster, store=config.store)
    except (state.DamagedState, integrity.StoreElsewhere) as damage:
        # The administrator has to restore a file, or to name the store; a retry would fail too.
        raise PermanentFailure(str(damage)) from damage
    for note in notes:
        print(f"warning: {note}", file=sys.stderr, flush=True)
    if config.is_first:
        _upgrade(config, cluster)
    else:
        wait_for_keys(config)
    # A server lives long: it must not keep the file system busy that it was started from.
    os.chdir(config.state)

    def on_ready(ready: ApiServer) -> None:
        if config.is_first:
            integrity.record_files(config.state, store=config.store)
        state.write_server(config.state, _record(config, ready.url), part)
        announce(Announcement(ready.url, ready.ca_pem, ready.token))

    try:
        control_plane.run(config, on_ready, part)
    except Exception as error:
        cause = innermost(error)
        if isinstance(cause, PortUnavailable):
            raise TemporaryFailure(str(cause)) from error
        if explanation := explain(cause, config):
            kind = PermanentFailure if is_permanent(cause) else TemporaryFailure
            raise kind(explanation) from error
        raise cause from None
    return 0


def wait_for_keys(config: "ServerConfig") -> None:
    """Wait until the first server of the directory has made the keys, which all of them have."""
    import time

    from kedge.cli.failure import TemporaryFailure
    from kedge.machinery.clock import SystemClock

    files = (config.pki / "sa.pub", config.pki / "ca.crt", config.token_file)
    clock = SystemClock()
    deadline = clock.monotonic() + KEYS_SECONDS
    while not all(each.exists() for each in files):
        if clock.monotonic() > deadline:
            raise TemporaryFailure(
                f"the first server of {config.state} has made no keys: its log, server.log, may say"
                " why"
            )
        time.sleep(0.05)  # noqa: TID251 - no event loop runs here


def _upgrade(config: "ServerConfig", cluster: "state.ClusterRecord") -> None:
    """Convert a directory of an older kedge. `kedge up` has done that before it starts a server."""
    from kedge.cli.cluster import state
    from kedge.cli.cluster.conversions import LAYOUT

    if cluster.layout == LAYOUT:
        return
    from kedge.cli.cluster.layout_upgrade import upgrade
    from kedge.machinery.clock import SystemClock

    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with state.changing(config.state):
        upgrade(config.state, state.read(config.state) or cluster, SystemClock().now(), note)


def _record(config: "ServerConfig", url: str) -> "state.ServerRecord":
    from urllib.parse import urlsplit

    from msgspec.structs import replace

    from kedge import __version__
    from kedge.cli.cluster import state
    from kedge.controllers.names import disabled
    from kedge.machinery.clock import SystemClock

    return state.ServerRecord(
        pid=os.getpid(),
        url=url,
        version=__version__,
        started=SystemClock().now(),
        store=config.store,
        admission=config.admission,
        upstream_only=config.upstream_only,
        disabled_controllers=disabled(config.controllers),
        flags=tuple(arguments(replace(config, port=urlsplit(url).port or 0))),
    )


def tell(descriptor: int) -> Callable[["Announcement"], None]:
    """Announce to a program that waits at the other end of a pipe."""

    def announce(ready: "Announcement") -> None:
        from kedge.cli.cluster import announcement

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
