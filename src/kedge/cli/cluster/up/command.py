"""`kedge up`: its flags, its configuration and its messages."""

import gc
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kedge.cli import flags
from kedge.cli.cluster import node, server
from kedge.cli.failure import Failure, PermanentFailure, StartFailure
from kedge.settings import parse, values
from kedge.settings.cluster import CONTEXT_PREFIX
from kedge.settings.setting import Setting

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig
    from kedge.cli.cluster.up.running_settings import SettingChange
    from kedge.cli.config.settings import Settings
    from kedge.node.config import NodeConfig

DESCRIPTION: Final = """\
Start a cluster in the background and return when it is ready.

The context kedge-NAME is added to your kubeconfig and made the current one; 'kedge down' removes
it. Objects survive 'kedge down' and a restart of the machine: the next 'kedge up' serves them
again, on the same port.

If the cluster is running, settings that are not given stay as they are. --image-map, the settings
of registries and a number of --nodes change while it runs; for other settings that differ the
command fails, and prints the command that restarts the cluster with them.

A small process keeps running. It restarts the server and the node agents when they die, on the same
port: immediately, then after 1, 2, 4 ... 60 seconds. 'kedge status' shows the reason. It gives up a
program that failed to start 8 times in a row. If it is gone, 'kedge up' starts another one."""
EXAMPLES: Final = """\
  # Start a cluster, use it, stop it
  kedge up
  kubectl run hello --image host -- echo hello
  kubectl logs -f hello
  kedge down

  # A second one beside it
  kedge up --name other
  kubectl --context kedge-other get namespaces

  # One to throw away, in a test
  kedge up --name test --store memory --kubeconfig ./kubeconfig
  kedge down --name test --purge

  # Three nodes, and another image in place of one that cannot be pulled
  kedge up --nodes 3 --image-map 'busybox:*=host'

  # Pull through a proxy and a mirror of Docker Hub
  HTTPS_PROXY=http://proxy.example:3128 kedge up \\
      --registry-mirror docker.io=https://mirror.example:5000

  # One node, and up to four more while pods do not fit
  kedge up --nodes 1..5

  # Change a cluster that runs: two more nodes; then another port, which takes a restart
  kedge up --nodes 3
  kedge up --port 7000 --restart

  # In a script: the result as JSON, messages on standard error or nowhere
  kedge up -q -o json

  # In the foreground, until Ctrl-C
  kedge up --foreground"""


RestartPolicy = Literal["always", "never"]

NODES: Final = Setting(
    "nodes",
    values.NODE_RANGE,
    "how many nodes to run, 0 for an API server alone; a range such as 1..5 adds nodes for"
    " pods that do not fit, and removes nodes that are not needed",
    default="1",
)
SCALE_DOWN_DELAY: Final = Setting(
    "scale-down-delay",
    values.SECONDS,
    "with a range of nodes: how long a node is not needed before it is removed",
    default="2m",
)
RESTART: Final = Setting(
    "restart",
    values.RESTART_POLICY,
    "whether the server and the node agents are restarted when they die",
    default="always",
)
RESTART_NOW: Final = "now"
"""The value of --restart that is not a policy."""
RESOLUTION_SECONDS: Final = 10
"""On one machine reports cost next to nothing, and users look at a cluster that they try out."""
OF_A_SERVER_ALONE: Final = (
    "scrape_seconds",
    "replica",
    "local_nodes",
    "dns",
    "device_access",
    "testing",
    "load_balancer_network",
)
"""Fields that `kedge up` sets itself, or for which the flag of the nodes counts too."""


class UpConfig(NamedTuple):
    """The settings of one `kedge up`."""

    server: "ServerConfig"
    """The server to start; its port counts only if `port_given`."""
    nodes: "tuple[NodeConfig, ...]"
    """The nodes to start."""
    port_given: bool
    root: Path
    """Where clusters are listed."""
    kubeconfig: Path
    wait: float
    """Seconds until a server that is not ready is given up."""
    restart: "RestartPolicy" = "always"
    """Whether programs that die are restarted: always or never."""
    spare: "tuple[NodeConfig, ...]" = ()
    """The nodes that the autoscaler may add."""
    scale_down_delay: float = 120.0
    """Seconds for which a node is not needed before the autoscaler removes it."""
    changes: "tuple[SettingChange, ...]" = ()
    """The settings to change while the cluster runs."""


class UpResult(NamedTuple):
    """The result of one `kedge up`."""

    url: str
    kubeconfig: str
    previous_context: str
    was_running: bool


Say = Callable[[str], None]


def add_flags(parser: ArgumentParser) -> None:
    flags.add_which(parser)
    add_cluster_flags(parser)
    flags.add_kubeconfig(parser)
    parser.add_argument(
        RESTART.flag,
        nargs="?",
        const=RESTART_NOW,
        choices=(RESTART_NOW, *RESTART.type.choices),
        help="'now', or no value: restart the cluster if it runs, with its settings and those that"
        f" are given; else {RESTART.help} (default: ${RESTART.variable}, else {RESTART.default})",
    )
    flags.add_output(parser)
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print nothing but warnings and errors, to standard error",
    )
    parser.add_argument(
        "--foreground",
        action="store_true",
        help="stay in the foreground; on Ctrl-C stop the cluster as 'kedge down' does",
    )


def add_cluster_flags(parser: ArgumentParser) -> None:
    """Add the flags of a new cluster, wherever it is kept."""
    flags.add_settings(
        parser,
        [each for each in server.settings() if each.field not in OF_A_SERVER_ALONE],
        {
            "port": "the one it had before, else any free one",
            "admission-control": "those of Kubernetes",
            "gateway": "on",
        },
        {"controllers": server.CONTROLLERS},
    )
    flags.add_setting(parser, NODES, NODES.default)
    flags.add_setting(parser, SCALE_DOWN_DELAY, SCALE_DOWN_DELAY.default)
    flags.add_settings(
        parser, node.settings(), {"metrics-resolution": values.RESOLUTION.text(RESOLUTION_SECONDS)}
    )
    parser.add_argument(
        "--wait",
        type=parse.seconds,
        default=30.0,
        metavar="DURATION",
        help="how long to wait until the cluster is ready, such as 10s or 1m (default: 30s)",
    )


def run(flags: Namespace) -> int:
    # The command ends before there is garbage worth collecting; a server enables this again.
    gc.disable()
    from kedge.cli.cluster.state import DamagedState

    try:
        return _bring_up(flags)
    except DamagedState as damage:
        # The same codes as if the server had found the damage: it reads other files.
        kind = PermanentFailure if flags.foreground else StartFailure
        raise kind(str(damage)) from damage


def _bring_up(flags: Namespace) -> int:
    from kedge.cli.cluster import server_parts
    from kedge.cli.cluster.up.foreground import foreground
    from kedge.cli.cluster.up.start import background
    from kedge.cli.config.cluster import place
    from kedge.cli.config.settings import Settings
    from kedge.cli.config.up import up_config

    is_restart = flags.restart == RESTART_NOW
    if is_restart:
        flags.restart = None
    source = Settings(flags)
    if server_parts.any_running(place(source)[1]):
        config, left = _running_config(source, _messages(flags), is_restart=is_restart)
    else:
        config, left = up_config(source), ()
    begin = foreground if flags.foreground else background
    say = _messages(flags)
    if done := begin(config, say):
        if done.was_running:
            _check_flags(flags, config)
            done = _with_kubeconfig(flags, config, done, say)
        say(report(config, done) + ("" if done.was_running else _lacks(config)))
        if flags.output:
            from kedge.cli.output.printers import document

            _say(document(summary(config, done), flags.output))
    if left:
        raise _needs_restart(config, left)
    return 0


def _check_flags(flags: Namespace, config: UpConfig) -> None:
    """Refuse to stay in the foreground for a cluster that runs elsewhere."""
    if flags.foreground:
        name = config.server.name
        raise Failure(
            f'cluster "{name}" is running already, and not in this terminal: stop it with'
            f" 'kedge down --name {name}' first, or leave out --foreground"
        )


def _with_kubeconfig(flags: Namespace, config: UpConfig, done: UpResult, say: Say) -> UpResult:
    """Move the context of a running cluster to the kubeconfig that the command names."""
    from kedge.cli.cluster.announcement import Announcement
    from kedge.cli.cluster.up.preparation import adopt

    if not flags.kubeconfig or str(config.kubeconfig) == done.kubeconfig:
        return done
    place = config.server.state
    token = (place / "token").read_text().strip()
    moved = adopt(config, Announcement(done.url, (place / "pki" / "ca.crt").read_bytes(), token))
    say(f'Context "{context(config.server.name)}" is now in {moved.kubeconfig}.')
    return moved._replace(was_running=True)


def _running_config(
    source: "Settings", say: Say, *, is_restart: bool
) -> "tuple[UpConfig, Sequence[SettingChange]]":
    """Return the configuration of a cluster that runs, and the settings that need a restart."""
    from kedge.cli.cluster.up import running_settings
    from kedge.cli.config.cluster import place
    from kedge.cli.config.up import up_config

    found = running_settings.read(place(source)[1])
    if found is None:
        return up_config(source), ()
    known = running_settings.values(found)
    wanted = up_config(source.over(known))
    if is_restart:
        return _stopped(source, wanted, say), ()
    changed = running_settings.changes(source, found, wanted)
    left = [each for each in changed if not each.is_live]
    config = up_config(source.over(known).holding(running_settings.held(left, known)))
    return config._replace(changes=tuple(each for each in changed if each.is_live)), left


def _stopped(source: "Settings", config: UpConfig, say: Say) -> UpConfig:
    """Stop the cluster, to be started again; returns its configuration."""
    from kedge.cli.cluster import registry
    from kedge.cli.cluster.down import take_down

    location = registry.ClusterLocation(config.root, config.server.name, config.server.state)
    if found := registry.find(location):
        if found.cluster.kubeconfig and not source.flags.kubeconfig:
            config = config._replace(kubeconfig=Path(found.cluster.kubeconfig))
        say(take_down(found, config.root, purge=False))
    return config


def _needs_restart(config: UpConfig, left: "Sequence[SettingChange]") -> Failure:
    from kedge.cli.cluster.up import running_settings

    name = config.server.name
    differ = "; ".join(map(str, left))
    lost = " Its objects are in memory and get lost." if config.server.store == "memory" else ""
    return Failure(
        f'cluster "{name}" runs with other settings, which change only with a restart: {differ}.'
        f" Restart it with '{running_settings.command(name, left)}'.{lost}"
    )


def _messages(flags: Namespace) -> Say:
    """Return how messages are shown: those for people do not mix with output for programs."""
    if not flags.quiet and not flags.output:
        return _say

    def say(text: str) -> None:
        if not flags.quiet or text.startswith("warning: "):
            print(text, file=sys.stderr, flush=True)

    return say


def summary(config: UpConfig, done: UpResult) -> dict[str, object]:
    """Return the result for programs."""
    return {
        "name": config.server.name,
        "url": done.url,
        "kubeconfig": done.kubeconfig,
        "context": context(config.server.name),
        "state": str(config.server.state),
        "nodes": [each.name for each in config.nodes],
        "wasRunning": done.was_running,
        "changed": [each.setting.name for each in config.changes],
    }


def _say(text: str) -> None:
    """Print a message. The cluster is started also if the reader is gone: `kedge up | head -1`."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Later messages, and the interpreter at its end, write to the same descriptor.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _lacks(config: UpConfig) -> str:
    """Return a note if the machine lacks something that matters for isolation or limits."""
    levels = {_level(node.state) for node in config.nodes} - {"", "full"}
    if not levels:
        return ""
    return f"\n\nThe level is {min(levels)}: 'kedge doctor' shows what this machine lacks."


def _level(state: Path) -> str:
    """Return the level of a node, out of its record; empty if it has none yet."""
    try:
        return str(json.loads((state / "node.json").read_bytes())["level"])
    except (OSError, ValueError, KeyError):
        return ""


def context(name: str) -> str:
    """Return the name of the cluster's context in a kubeconfig."""
    return f"{CONTEXT_PREFIX}{name}"


def report(config: UpConfig, done: UpResult) -> str:
    """Return the message for the user: the result, and the next command."""
    name = config.server.name
    named = "" if name == "default" else f" --name {name}"
    if done.was_running:
        changed = "".join(f"{each.done}\n" for each in config.changes)
        return (
            f'{changed}Cluster "{name}" is already running at {done.url}.\n'
            f"Use it with:  kubectl --context {context(name)} get nodes"
        )
    before = f' (it was "{done.previous_context}")' if done.previous_context else ""
    return (
        f'Context "{context(name)}" is now the current one in {done.kubeconfig}{before}.\n\n'
        "Use it with:   kubectl get nodes\n"
        f"Stop it with:  kedge down{named}"
    )
