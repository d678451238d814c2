"""Checks before a start, the port of the server, and the context in the kubeconfig."""

import contextlib
import importlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from kedge.cli.cluster import integrity, registry, server_parts, state
from kedge.cli.cluster.announcement import Announcement
from kedge.cli.cluster.conversions import LAYOUT
from kedge.cli.cluster.down import withdraw_context
from kedge.cli.cluster.up.command import Say, UpConfig, UpResult, context
from kedge.cli.failure import Failure
from kedge.machinery.clock import SystemClock

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig


def prepare(config: UpConfig, say: Say) -> state.ClusterRecord:
    """See that nothing will be in the way, then make the cluster's directory."""
    name, directory = config.server.name, config.server.state
    if config.kubeconfig.exists():
        check(config.kubeconfig, context(name), state.authority(directory))
    registry.check_free(config.root, name, directory)
    state.check_owner(directory)
    integrity.check_types(directory)
    cluster = state.prepare(directory, name)
    if server_parts.any_running(directory) is None:
        # Before anything is started: containers must not end because of an error that the server
        # would report.
        for note in integrity.check(directory, cluster, store=config.server.store):
            say(f"warning: {note}.")
    try:
        registry.register(config.root, name, directory)
    except OSError as error:
        say(
            f"warning: 'kedge list' will not show this cluster: cannot write to {config.root}:"
            f" {error.strerror}. Stop it with 'kedge down --state {directory}'."
        )
    return cluster


def upgraded(directory: Path, cluster: state.ClusterRecord, say: Say) -> state.ClusterRecord:
    """Convert a directory of an older kedge; returns the record of the cluster."""
    if cluster.layout == LAYOUT:
        return cluster
    # Not above: few starts need it.
    from kedge.cli.cluster.layout_upgrade import upgrade

    # Read again: another command may have converted it before this one got the lock.
    return upgrade(directory, recorded_cluster(directory), SystemClock().now(), say)


def check(path: Path, name: str, ours: bytes) -> None:
    """See that the kubeconfig is one, and that no other cluster is in use under our name."""
    # Not above: nothing is to wait for a YAML library that there is nothing to read with.
    from kedge.client import kubeconfig

    try:
        known = kubeconfig.find(path, name)
    except kubeconfig.KubeconfigError as error:
        raise Failure(str(error)) from error
    if known and known.ca_pem not in (b"", ours) and answers(known.server):
        raise Failure(
            f'the context "{name}" in {path} is that of another cluster, at {known.server}: choose'
            " another --name, or another file with --kubeconfig"
        )


def answers(url: str) -> bool:
    """Return whether a server listens there."""
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname or "", where.port or 443), 1).close()
    except (OSError, ValueError):
        return False
    return True


def settle_port(config: UpConfig, cluster: state.ClusterRecord, say: Say) -> "ServerConfig":
    """The server's configuration with the port it is to have: as asked, as before, or any."""
    asked = config.server
    if config.port_given or not cluster.port:
        return asked
    if port_is_free(asked.host, cluster.port):
        return msgspec.structs.replace(asked, port=cluster.port)
    say(f"Port {cluster.port}, which the cluster had before, is in use: taking another one.")
    return asked


def one_port(settings: "ServerConfig") -> "ServerConfig":
    """Return the settings with a port that several servers can share: each of them would choose
    another one."""
    if settings.port or settings.servers == 1:
        return settings
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((settings.host, 0))
        return msgspec.structs.replace(settings, port=probe.getsockname()[1])


def port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def help_along(config: "ServerConfig", cluster: state.ClusterRecord) -> None:
    """Do work of the server, and of this command, while the server loads its modules."""
    if not cluster.has_run:
        from kedge.apiserver import pki, server_addresses

        # The server finds the same error and explains it.
        with contextlib.suppress(OSError, pki.AuthorityError):
            pki.ensure(config.pki, server_addresses.hosts(config))
            now = SystemClock().now()
            for name, at in config.local_nodes.items():
                pki.ensure_node(config.pki, name, (name, at), config.node_pki(name), now)
            pki.ensure_front_proxy(config.front_proxy_pki, now)
    # This command needs it as soon as the server is ready.
    importlib.import_module("kedge.client.kubeconfig")


def adopt(config: UpConfig, announced: Announcement) -> UpResult:
    """Point kubectl at the cluster, and remember how things were before."""
    from kedge.client import kubeconfig

    directory = config.server.state
    cluster = recorded_cluster(directory)
    if cluster.kubeconfig not in ("", str(config.kubeconfig)):
        # A server that was killed has left its context in another file.
        withdraw_context(directory, config.root)
        cluster = recorded_cluster(directory)
    access = kubeconfig.ClusterAccess(
        context(cluster.name), announced.url, announced.ca_pem, announced.token
    )
    try:
        before = kubeconfig.merge(config.kubeconfig, access)
    except kubeconfig.KubeconfigError as error:
        raise Failure(str(error)) from error
    cluster = msgspec.structs.replace(
        cluster,
        port=urlsplit(announced.url).port or 0,
        kubeconfig=str(config.kubeconfig),
        previous_context=before.context or cluster.previous_context,
        kubeconfig_existed=before.existed and cluster.kubeconfig_existed,
    )
    state.write(directory, cluster)
    return UpResult(announced.url, cluster.kubeconfig, before.context, was_running=False)


def recorded_cluster(directory: Path) -> state.ClusterRecord:
    cluster = state.read(directory)
    if cluster is None:
        raise Failure(f"{directory} was removed while the cluster was being started")
    return cluster


def running_cluster(directory: Path) -> UpResult:
    known = state.read_server(directory)
    url = known.url if known else "an address that is not known yet"
    return UpResult(url, recorded_cluster(directory).kubeconfig, "", was_running=True)
