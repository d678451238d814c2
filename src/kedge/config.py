"""Configuration: flags over environment over defaults, resolved once into frozen values.

This is the one place that reads the environment.
"""

import argparse
import os
import socket
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from kedge.apiserver.config import (
    ADMISSION_PLUGINS,
    NODE_GRACE,
    READS_IN_FLIGHT,
    UPSTREAM_ADMISSION,
    WRITES_IN_FLIGHT,
    KubeletTrust,
    ServerConfig,
)
from kedge.cli import flags as read
from kedge.cli.client_flags import Whereto
from kedge.cli.failure import Failure
from kedge.cli.registry import Where, resolve
from kedge.cli.state import read as read_cluster
from kedge.cli.state import read_server
from kedge.cli.up import UpConfig
from kedge.client.kubeconfig_paths import path_to_change, paths_to_read
from kedge.controllers import names as controllers
from kedge.machinery.interfaces import address_towards
from kedge.metrics.windows import SHORTEST
from kedge.metrics_server.config import PORT as METRICS_PORT
from kedge.metrics_server.config import MetricsServerConfig
from kedge.node.config import MOST_PIDS, MOST_PODS, PLUGINS, RESOLUTION, Invitation, NodeConfig
from kedge.node.host.node_record import read_server as server_of
from kedge.restarter.program import REASON_VARIABLE

if TYPE_CHECKING:
    from kedge.client.login import Login

T = TypeVar("T")

DEFAULT_NAME: Final = "default"
SERVER_PORT: Final = 6443
SCRAPED_EVERY: Final = 15
"""Seconds between two readings of a kubelet: it has something new every ten to twenty."""
SERVER_ADMISSION: Final = ("NamespaceLifecycle",)
"""What a server by itself enforces if nothing is named: namespaces mean nothing without it."""

_ADMISSION: Final = ("admission_control", "enable_admission_plugins", "disable_admission_plugins")


class Source:
    """Where settings come from: what was said on the command line, else in the environment."""

    def __init__(self, flags: Namespace, environment: Mapping[str, str] = os.environ) -> None:
        self.flags = flags
        self.environment = environment

    def get(self, setting: str, parse: Callable[[str], T]) -> T | None:
        """The flag's value, else what $KEDGE_SETTING says, else None."""
        given: T | None = getattr(self.flags, setting, None)
        if given is not None:
            return given
        variable = f"KEDGE_{setting.upper()}"
        text = self.environment.get(variable)
        if text is None:
            return None
        try:
            return parse(text)
        except argparse.ArgumentTypeError as error:
            raise Failure(f"${variable}: {error}") from error

    def root(self) -> Path:
        """Where clusters are kept and listed."""
        chosen = Path(self.environment.get("XDG_STATE_HOME", ""))
        # As the base directory specification has it: a relative path is invalid, and ignored. A
        # cluster would be found again in one working directory only.
        if chosen.is_absolute():
            return chosen.resolve() / "kedge"
        return self.usual_root()

    def usual_root(self) -> Path:
        """Where they are unless the environment says otherwise."""
        if os.geteuid() == 0:
            return Path("/var/lib/kedge")
        return self.home().resolve() / ".local" / "state" / "kedge"

    def home(self) -> Path:
        if home := self.environment.get("HOME"):
            return Path(home)
        try:
            return Path("~").expanduser()
        except RuntimeError as error:
            raise Failure(
                f"user {os.geteuid()} has no home directory: set HOME to one that is theirs"
            ) from error


def where(source: Source) -> Where:
    """Which cluster the command is about."""
    name = source.get("name", read.cluster_name)
    directory = source.get("state", read.directory)
    if getattr(source.flags, "name", None) and getattr(source.flags, "state", None) is None:
        # A name on the command line says more than a directory in the environment.
        directory = None
    # By its real name: bridges and control groups are found again by it, whatever link leads there.
    real = directory.resolve() if directory else None
    return Where(source.root(), name or DEFAULT_NAME, real)


def server(source: Source) -> ServerConfig:
    """What a server is to do if it is started by itself."""
    return _server(source, port=SERVER_PORT, admission=SERVER_ADMISSION)


def metrics_server(source: Source) -> MetricsServerConfig:
    """What a metrics server is to do."""
    # $KEDGE_STATE is where a cluster is, which this is not.
    state: Path | None = source.flags.state
    certificate, key = _file(source, "tls_cert_file"), _file(source, "tls_private_key_file")
    if (certificate is None) != (key is None):
        raise Failure("--tls-cert-file and --tls-private-key-file belong together")
    port = source.get("port", read.port_number)
    return MetricsServerConfig(
        state=state or source.root().with_name("kedge-metrics"),
        host=source.get("host", str) or "127.0.0.1",
        port=METRICS_PORT if port is None else port,
        hosts=source.get("cert_hosts", read.items) or (),
        certificate=certificate,
        key=key,
        kubelets=_kubelets(source),
        resolution=source.get("metrics_resolution", read.resolution_seconds) or SCRAPED_EVERY,
        window=source.get("metrics_window", read.usage_window) or SHORTEST,
    )


def login(source: Source) -> "Callable[[], Login]":
    """How to find the cluster of a kubeconfig or, without one, that of the pod that this is."""
    from kedge.client import login
    from kedge.metrics_server.run import in_cluster

    found = whereto(source)
    if any(path.exists() for path in found.files):
        return lambda: login.read(found.files, found.context)
    return lambda: in_cluster(source.environment)


def up(source: Source) -> UpConfig:
    """What `kedge up` is to do."""
    nodes = _nodes(source)
    server = _server(source, port=0, admission=UPSTREAM_ADMISSION)
    return UpConfig(
        server=msgspec.structs.replace(
            server, local_nodes={each.name: each.address for each in nodes}
        ),
        nodes=nodes,
        port_given=source.get("port", read.port_number) is not None,
        root=source.root(),
        kubeconfig=kubeconfig(source),
        wait=source.flags.wait,
        restart=source.get("restart", read.restart_policy) or "always",
    )


def node(source: Source) -> NodeConfig:
    """What a node agent is to do if it is started by itself."""
    name = source.get("node_name", read.node_name) or _node_here(source)
    config = _node(source, name)
    url = _joined(source, config)
    if not url or source.get("node_address", str) is not None:
        return config
    host = urlsplit(url)
    try:
        address = address_towards(host.hostname or "", host.port or 443)
    except OSError as error:
        raise Failure(
            f"no interface of this machine leads to {url} ({error}): say with --node-address under"
            " which address the node is to be reached"
        ) from error
    return msgspec.structs.replace(config, address=address)


def _node_here(source: Source) -> str:
    """What the node is called if nobody says it."""
    if source.get("token", read.bootstrap_token):
        try:
            return read.node_name(socket.gethostname().lower())
        except argparse.ArgumentTypeError as error:
            raise Failure(
                f"the host name is no name for a node, give --node-name: {error}"
            ) from error
    nodes = _place(source)[1] / "nodes"
    found = [each.name for each in nodes.iterdir()] if nodes.is_dir() else []
    return found[0] if len(found) == 1 else node_name(1)


def _joined(source: Source, config: NodeConfig) -> str:
    """The server of a cluster elsewhere that the node joins or has joined."""
    asked = source.get("server", read.server_url) if source.get("token", str) else None
    return asked or server_of(config.state)


def invitation(source: Source) -> Invitation | None:
    """What is needed to join a cluster, if that is what is asked for."""
    token = source.get("token", read.bootstrap_token)
    if not token:
        return None
    url = source.get("server", read.server_url)
    if not url:
        raise Failure("--token is for joining a cluster: say with --server where it is")
    return Invitation(
        url=url,
        token=token,
        ca_hash=source.get("ca_cert_hash", read.key_digest) or "",
        ca_pem=_authority(_file(source, "ca_cert")),
    )


def _authority(path: Path | None) -> bytes:
    if path is None:
        return b""
    # Only here: what it takes to read a certificate is of no use to anybody else.
    from kedge.machinery.certificates import validity

    try:
        content = path.read_bytes()
        validity(content)
    except OSError as error:
        raise Failure(f"--ca-cert: {path}: {error.strerror}") from error
    except ValueError as error:
        raise Failure(f"--ca-cert: {path}: {error}") from error
    return content


def server_of_node(source: Source, config: NodeConfig) -> str:
    """Where the node finds its server: as told, else where it joined, else where it last was."""
    known = read_server(config.hidden[0])
    url = source.get("server", read.server_url) or server_of(config.state)
    url = url or (known.url if known else "")
    if not url:
        raise Failure(f"nothing is known of a server in {config.hidden[0]}: name one with --server")
    return url


def node_name(number: int) -> str:
    """What the nodes of a cluster on one machine are called."""
    return f"node-{number}"


def _nodes(source: Source) -> tuple[NodeConfig, ...]:
    asked = source.get("nodes", read.count)
    number = 1 if asked is None else asked
    # On one machine reporting costs next to nothing, and people look at what they try out.
    return tuple(_node(source, node_name(i + 1), resolution=10) for i in range(number))


def _node(source: Source, name: str, *, resolution: int = RESOLUTION) -> NodeConfig:
    cluster, state = _place(source)
    directory = state / "nodes" / name
    rules = source.get("image_map", lambda text: [read.image_rule(text)])
    shown = source.get("host_image_show", lambda text: [Path(text)])
    devices = source.get("devices", lambda text: [read.device_count(text)])
    max_pods = source.get("max_pods", read.count)
    max_pids = source.get("pod_max_pids", int)
    return NodeConfig(
        name=name,
        cluster=cluster,
        state=directory,
        images=state / "images",
        hidden=_hidden(source, state),
        listed=(source.root(), source.usual_root()),
        address=source.get("node_address", str) or "127.0.0.1",
        port=source.get("node_port", read.port_number) or 0,
        labels=source.get("node_labels", read.labels) or {},
        exposed_labels=source.get("expose_node_labels", read.label_patterns) or (),
        host_image=_host_image(source, rules or ()),
        host_image_shown=tuple(each.absolute() for each in shown or ()),
        image_map=tuple(rules or ()),
        plugins=_plugin_directory(source, name, directory / "kubelet" / "device-plugins"),
        devices={name: number for each in devices or () for name, number in each.items()},
        reserved=source.get("reserved", read.amounts) or {},
        max_pods=MOST_PODS if max_pods is None else max_pods,
        max_pids=MOST_PIDS if max_pids is None else max_pids,
        restart_reason=source.environment.get(REASON_VARIABLE, ""),
        metrics_resolution=source.get("metrics_resolution", read.resolution_seconds) or resolution,
    )


def _host_image(source: Source, rules: Sequence[str]) -> bool:
    """Return whether pods may use the image `host`; --image-map rules to it require it."""
    is_on = source.get("host_image", read.truth)
    leading = next((rule for rule in rules if rule.endswith("=host")), None)
    if is_on is False and leading:
        raise Failure(f"--image-map {leading} needs the image host: leave out --no-host-image")
    return is_on is not False


def _hidden(source: Source, state: Path) -> tuple[Path, ...]:
    """What of the machine no container is to see: all clusters of this user, and the ways in."""
    listed = source.environment.get("KUBECONFIG", "")
    chosen: Path | None = getattr(source.flags, "kubeconfig", None)
    files = [*paths_to_read(listed, source.home()), *([chosen] if chosen else ())]
    asked = source.get("hide", lambda text: [Path(text)]) or []
    every = (
        state,
        source.root(),
        source.usual_root(),
        *(each.absolute() for each in (*files, *asked)),
    )
    return tuple(dict.fromkeys(every))


def _plugin_directory(source: Source, name: str, own: Path) -> Path:
    """Where device plugins register: as told, else where Kubernetes has it, which plugins take for
    granted. Only one node can have that; those that `kedge up` adds have a place of their own."""
    if name != node_name(1) and not hasattr(source.flags, "node_name"):
        return own
    asked = source.get("device_plugin_dir", read.directory)
    return asked or (PLUGINS if os.geteuid() == 0 else own)


def kubeconfig(source: Source) -> Path:
    """The kubeconfig file to put the cluster into."""
    given: Path | None = source.flags.kubeconfig
    listed = source.environment.get("KUBECONFIG", "")
    return (given or path_to_change(listed, source.home())).absolute()


def whereto(source: Source) -> Whereto:
    """Where a command that speaks to a cluster as kubectl does is to go."""
    given: Path | None = source.flags.kubeconfig
    listed = source.environment.get("KUBECONFIG", "")
    return Whereto(
        files=[given] if given else paths_to_read(listed, source.home()),
        context=source.flags.context,
        namespace=getattr(source.flags, "namespace", ""),
    )


def _server(source: Source, *, port: int, admission: tuple[str, ...]) -> ServerConfig:
    name, state = _place(source)
    asked_port = source.get("port", read.port_number)
    reads = source.get("max_requests_inflight", read.count)
    writes = source.get("max_mutating_requests_inflight", read.count)
    return ServerConfig(
        name=name,
        state=state,
        host=source.get("host", str) or "127.0.0.1",
        port=port if asked_port is None else asked_port,
        store=source.get("store", read.store) or "sqlite",
        admission=_admission(source, admission),
        upstream_only=source.get("upstream_only", read.truth) or False,
        scheduler_usage=source.get("scheduler_usage", read.on_or_off) != "off",
        hosts=source.get("cert_hosts", read.items) or (),
        local_nodes=source.get("local_nodes", read.nodes) or {},
        token_auth_file=_file(source, "token_auth_file"),
        audit_log=_file(source, "audit_log_path"),
        metrics_window=source.get("metrics_window", read.usage_window) or SHORTEST,
        scrape_kubelets=source.get("scrape_kubelets", read.truth) or False,
        kubelets=_kubelets(source),
        scrape_seconds=source.get("metrics_resolution", read.resolution_seconds) or SCRAPED_EVERY,
        max_requests_inflight=READS_IN_FLIGHT if reads is None else reads,
        max_mutating_requests_inflight=WRITES_IN_FLIGHT if writes is None else writes,
        controllers=_controllers(source),
        node_grace=source.get("node_monitor_grace_period", read.seconds) or NODE_GRACE,
        restart_reason=source.environment.get(REASON_VARIABLE, ""),
    )


def _kubelets(source: Source) -> KubeletTrust:
    return KubeletTrust(
        authority=_file(source, "kubelet_certificate_authority"),
        anybody=source.get("kubelet_insecure_tls", read.truth) or False,
    )


def _file(source: Source, setting: str) -> Path | None:
    path = source.get(setting, read.file)
    return Path(path) if path else None


def _place(source: Source) -> tuple[str, Path]:
    """The cluster's name and directory; a directory that holds a cluster knows its name."""
    asked = where(source)
    if asked.directory is None:
        return asked.name, resolve(asked.root, asked.name)
    if source.get("name", read.cluster_name) is None:
        known = read_cluster(asked.directory)
        return known.name if known else DEFAULT_NAME, asked.directory
    return asked.name, asked.directory


def _admission(source: Source, default: tuple[str, ...]) -> tuple[str, ...]:
    """The plugins to enforce, in the order in which they run."""
    if any(getattr(source.flags, setting, None) is not None for setting in _ADMISSION):
        # The three belong together: what the command line says of them is all that counts.
        source = Source(source.flags, {})
    exact, more, fewer = (_plugins(source, setting) for setting in _ADMISSION)
    if exact is not None and (more is not None or fewer is not None):
        raise Failure(
            f"{_flag(_ADMISSION[0])} names every plugin to enforce, which leaves nothing for"
            f" {_flag(_ADMISSION[1 if fewer is None else 2])} to change: give one of them"
        )
    if both := {*(more or ())} & {*(fewer or ())}:
        raise Failure(f'admission plugin "{min(both)}" is both enabled and disabled')
    asked = {*default, *(more or ())} - {*(fewer or ())} if exact is None else {*exact}
    return tuple(name for name in ADMISSION_PLUGINS if name in asked)


def _controllers(source: Source) -> tuple[str, ...]:
    """The controllers to run: all, unless a list says otherwise."""
    asked = source.get("controllers", read.items)
    try:
        return controllers.ALL if asked is None else controllers.enabled(asked)
    except controllers.UnknownController as error:
        raise Failure(
            f'there is no controller "{error}": {_flag("controllers")} takes a list of * for all,'
            f" NAME and -NAME, with the names {', '.join(controllers.ALL)}"
        ) from None


def _plugins(source: Source, setting: str) -> tuple[str, ...] | None:
    asked = source.get(setting, read.items)
    if unknown := [name for name in asked or () if name not in ADMISSION_PLUGINS]:
        raise Failure(
            f'there is no admission plugin "{unknown[0]}": {_flag(setting)} takes a list of'
            f" {', '.join(ADMISSION_PLUGINS)}"
        )
    return asked


def _flag(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"
