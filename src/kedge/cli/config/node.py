"""Make the configuration of `kedge node`."""

import argparse
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from kedge.cli.cluster.state import read_server
from kedge.cli.config.cluster import place
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.client.kubeconfig_paths import paths_to_read
from kedge.machinery import proxies
from kedge.machinery.interfaces import address_towards
from kedge.machinery.tls_trust import trusting
from kedge.node.config import PLUGINS, Invitation, NodeConfig
from kedge.node.host import node_record
from kedge.node.host.node_record import read_server as server_of
from kedge.restarter.program import REASON_VARIABLE
from kedge.settings import parse


def node_config(source: Settings) -> NodeConfig:
    """Return the configuration of a node agent that is started by itself."""
    name = source.field(NodeConfig, "name") or _node_here(source)
    config = configured_node(source, name, is_first=True)
    url = _joined(source, config)
    if not url:
        return _where_it_was(config)
    if source.field(NodeConfig, "address") is not None:
        return config
    host = urlsplit(url.partition(",")[0])
    try:
        address = address_towards(host.hostname or "", host.port or 443)
    except OSError as error:
        raise Failure(
            f"no interface of this machine leads to {url} ({error}): say with --node-address under"
            " which address the node is to be reached"
        ) from error
    return msgspec.structs.replace(config, address=address)


def _where_it_was(config: NodeConfig) -> NodeConfig:
    """Return a node of `kedge up` with the address of its machine that `kedge up` found."""
    known = node_record.read(config.state)
    if config.machine_address or known is None:
        return config
    return msgspec.structs.replace(config, machine_address=known.machine_address)


def node_name(number: int) -> str:
    """Return the name of a node of `kedge up`."""
    return f"node-{number}"


def configured_node(
    source: Settings, name: str, *, is_first: bool, resolution: int | None = None
) -> NodeConfig:
    """Return the configuration of a node; `resolution` is its default if it is not that of all."""
    cluster, state = place(source)
    directory = state / "nodes" / name
    config = source.fill(
        NodeConfig,
        {"metrics_resolution": resolution} if resolution else None,
        name=name,
        cluster=cluster,
        state=directory,
        images=state / "images",
        hidden=_hidden(source, state),
        listed=(source.root(), source.usual_root()),
        plugins=_plugin_directory(source, directory, is_first=is_first),
        restart_reason=source.environment.get(REASON_VARIABLE, ""),
        proxies=proxies.from_environment(source.environment),
    )
    _check_authorities(config)
    mapped = next((rule for rule in config.image_map if rule.endswith("=host")), None)
    if mapped and not config.host_image:
        raise Failure(f"--image-map {mapped} needs the image host: leave out --no-host-image")
    return config


def _check_authorities(config: NodeConfig) -> None:
    """Refuse files that no registry can be verified with."""
    for each in config.registry_authorities:
        try:
            trusting(each.file.read_bytes())
        except OSError as error:
            raise Failure(f"--registry-ca {each}: {error.strerror}") from error
        except ValueError as error:
            raise Failure(f"--registry-ca {each}: it has no certificate in PEM form") from error


def invitation(source: Settings) -> Invitation | None:
    """Return the credentials to join a cluster; None if no token was given."""
    if not source.field(Invitation, "token"):
        return None
    if not source.field(Invitation, "url"):
        raise Failure("--token is for joining a cluster: say with --server where it is")
    return source.fill(Invitation, ca_pem=_authority(source.field(Invitation, "ca_pem")))


def server_of_node(source: Settings, config: NodeConfig) -> str:
    """Return the server of a node: the given one, else the one it joined, else the last known."""
    known = read_server(config.hidden[0])
    url = source.field(Invitation, "url") or server_of(config.state)
    url = url or (known.url if known else "")
    if not url:
        raise Failure(f"no server is recorded in {config.hidden[0]}: name one with --server")
    return str(url)


def _node_here(source: Settings) -> str:
    """Return the name of the node if none was given."""
    if source.field(Invitation, "token"):
        try:
            return parse.node_name(socket.gethostname().lower())
        except argparse.ArgumentTypeError as error:
            raise Failure(
                f"the host name is no name for a node, give --node-name: {error}"
            ) from error
    nodes = place(source)[1] / "nodes"
    found = [each.name for each in nodes.iterdir()] if nodes.is_dir() else []
    return found[0] if len(found) == 1 else node_name(1)


def _joined(source: Settings, config: NodeConfig) -> str:
    """Return the server of a cluster elsewhere that the node joins or has joined."""
    joins = source.field(Invitation, "token")
    asked: str | None = source.field(Invitation, "url") if joins else None
    return asked or server_of(config.state)


def _authority(path: Path | str | None) -> bytes:
    if not path:
        return b""
    # Imported here because only a machine that joins needs it.
    from kedge.machinery.certificates import validity

    try:
        content = Path(path).read_bytes()
        validity(content)
    except OSError as error:
        raise Failure(f"--ca-cert: {path}: {error.strerror}") from error
    except ValueError as error:
        raise Failure(f"--ca-cert: {path}: {error}") from error
    return content


def _hidden(source: Settings, state: Path) -> tuple[Path, ...]:
    """Return what containers must not see: all clusters of this user, and their credentials."""
    listed = source.environment.get("KUBECONFIG", "")
    chosen: Path | None = getattr(source.flags, "kubeconfig", None)
    files = [*paths_to_read(listed, source.home()), *([chosen] if chosen else ())]
    asked = source.field(NodeConfig, "hidden") or ()
    if credentials := source.field(NodeConfig, "registry_credentials"):
        asked = (*asked, credentials)
    every = (
        state,
        source.root(),
        source.usual_root(),
        *([source.path] if source.path else ()),
        *(each.absolute() for each in (*files, *asked)),
    )
    return tuple(dict.fromkeys(every))


def _plugin_directory(source: Settings, node: Path, *, is_first: bool) -> Path:
    """Return where device plugins register: as given, else where Kubernetes has it.

    Plugins take that directory for granted, and only one node can have it. Further nodes of `kedge
    up` have a directory of their own.
    """
    own = node / "kubelet" / "device-plugins"
    if not is_first:
        return own
    asked: Path | None = source.field(NodeConfig, "plugins")
    return asked or (PLUGINS if os.geteuid() == 0 else own)
