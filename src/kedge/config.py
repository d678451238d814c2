"""Configuration: flags over environment over defaults, resolved once into frozen values.

This is the one place that reads the environment.
"""

import argparse
import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from kedge.apiserver.config import ADMISSION_PLUGINS, UPSTREAM_ADMISSION, ServerConfig
from kedge.cli import flags as read
from kedge.cli.failure import Failure
from kedge.cli.registry import Where, resolve
from kedge.cli.state import read as read_cluster
from kedge.cli.up import UpConfig
from kedge.client.kubeconfig import path_to_change

T = TypeVar("T")

DEFAULT_NAME: Final = "default"
SERVER_PORT: Final = 6443
SERVER_ADMISSION: Final = ("NamespaceLifecycle",)
"""What a server by itself enforces if nothing is named: namespaces mean nothing without it."""


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
        if chosen := self.environment.get("XDG_STATE_HOME"):
            return Path(chosen).absolute() / "kedge"
        if os.geteuid() == 0:
            return Path("/var/lib/kedge")
        return self.home() / ".local" / "state" / "kedge"

    def home(self) -> Path:
        if home := self.environment.get("HOME"):
            return Path(home)
        return Path("~").expanduser()


def where(source: Source) -> Where:
    """Which cluster the command is about."""
    name = source.get("name", read.cluster_name)
    directory = source.get("state", read.directory)
    if getattr(source.flags, "name", None) and getattr(source.flags, "state", None) is None:
        # A name on the command line says more than a directory in the environment.
        directory = None
    return Where(source.root(), name or DEFAULT_NAME, directory)


def server(source: Source) -> ServerConfig:
    """What a server is to do if it is started by itself."""
    return _server(source, port=SERVER_PORT, admission=SERVER_ADMISSION)


def up(source: Source) -> UpConfig:
    """What `kedge up` is to do."""
    return UpConfig(
        server=_server(source, port=0, admission=UPSTREAM_ADMISSION),
        port_given=source.get("port", read.port_number) is not None,
        root=source.root(),
        kubeconfig=kubeconfig(source),
        wait=source.flags.wait,
    )


def kubeconfig(source: Source) -> Path:
    """The kubeconfig file to put the cluster into."""
    given: Path | None = source.flags.kubeconfig
    listed = source.environment.get("KUBECONFIG", "")
    return (given or path_to_change(listed, source.home())).absolute()


def _server(source: Source, *, port: int, admission: tuple[str, ...]) -> ServerConfig:
    name, state = _place(source)
    asked_port = source.get("port", read.port_number)
    return ServerConfig(
        name=name,
        state=state,
        host=source.get("host", str) or "127.0.0.1",
        port=port if asked_port is None else asked_port,
        store=source.get("store", read.store) or "sqlite",
        admission=_admission(source, admission),
        upstream_only=source.get("upstream_only", read.truth) or False,
        hosts=source.get("cert_hosts", read.items) or (),
    )


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
    asked = source.get("admission_control", read.items)
    if asked is None:
        return default
    if unknown := [name for name in asked if name not in ADMISSION_PLUGINS]:
        raise Failure(
            f'there is no admission plugin "{unknown[0]}": --admission-control takes a list of'
            f" {', '.join(ADMISSION_PLUGINS)}"
        )
    return asked
