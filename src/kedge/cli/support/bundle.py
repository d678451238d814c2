"""Collect the files of a support bundle."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kedge import __version__
from kedge.cli.cluster import cluster_status, registry, state
from kedge.cli.cluster.logs import kept_name, last_lines, log_files
from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.failure import Failure
from kedge.cli.support import redaction
from kedge.machinery import ownership
from kedge.machinery.clock import SystemClock

LINES: Final = 5000
"""Lines at the end of each log."""
RECORDS: Final = ("cluster.json", "server.json", "restarts.json", "gateway.json", "node-pool.json")
RESOURCES: Final = (
    "nodes",
    "pods",
    "events",
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "jobs.batch",
    "services",
    "endpointslices.discovery.k8s.io",
    "persistentvolumeclaims",
    "persistentvolumes",
    "limitranges",
    "resourcequotas",
)
"""Objects that are collected. Secrets and ConfigMaps are not among them."""

Part = tuple[str, Callable[[], object]]
"""A file of the bundle, and what makes its content: a text, or a value that becomes JSON."""


def write(path: Path, parts: Iterator[Part], known: list[str]) -> list[str]:
    """Write the bundle; returns the names of the files. A part that fails is a file that says why:
    a bundle is made when things are broken."""
    names: list[str] = []
    now = int(SystemClock().now().timestamp())
    # The file is for its owner: even without secrets it tells a lot.
    with open(path, "xb", opener=_private) as out, tarfile.open(fileobj=out, mode="w:gz") as bundle:
        for name, make in parts:
            try:
                content = _content(make(), known)
            except (Failure, OSError, ValueError) as error:
                name, content = f"{name}.failed", redaction.text(str(error), known).encode()
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), now, 0o600
            bundle.addfile(entry, io.BytesIO(content))
            names.append(name)
    return names


def _private(path: str, flags: int) -> int:
    import os

    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _content(made: object, known: list[str]) -> bytes:
    if isinstance(made, str):
        return redaction.text(made, known).encode()
    plain = redaction.document(msgspec.to_builtins(made), known)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2)


def secrets(directory: Path) -> list[str]:
    """Return the secrets of the cluster itself, to be removed wherever they stand."""
    try:
        return [ownership.read(directory / "token").decode().strip()]
    except (OSError, ownership.UntrustedPath, UnicodeDecodeError):
        return []


def machine_parts(root: Path) -> Iterator[Part]:
    """Yield the files about the machine."""
    yield "version.txt", lambda: f"kedge {__version__}\n"
    yield "machine.json", lambda: _machine(root)


def _machine(root: Path) -> object:
    from kedge.cli.doctor.findings import diagnose
    from kedge.cli.doctor.machine_facts import collect

    found = collect(root)
    return {"level": found.capabilities.level, "checks": diagnose(found)}


def cluster_parts(where: ClusterLocation, directory: Path) -> Iterator[Part]:
    """Yield the files about a cluster of this machine: its status, records and logs."""
    yield "status.json", lambda: _status(where)
    for name in RECORDS:
        if (directory / name).exists():
            yield name, lambda name=name: _json(directory / name)  # type: ignore[misc]
    for node in registry.node_directories(directory):
        if (node / "node.json").exists():
            yield f"nodes/{node.name}.json", lambda node=node: _json(node / "node.json")  # type: ignore[misc]
    for log in log_files(directory):
        yield f"logs/{kept_name(directory, log)}", lambda log=log: _log(log)  # type: ignore[misc]


def _status(where: ClusterLocation) -> object:
    found = registry.find(where)
    if found is None:
        raise registry.absent(where)
    return cluster_status.look(found, SystemClock().now())


def _json(path: Path) -> Any:
    return msgspec.json.decode(path.read_bytes())


def _log(path: Path) -> str:
    with open(path, "rb") as file:
        return b"".join(last_lines(file.fileno(), LINES)).decode(errors="replace")


def object_parts(directory: Path) -> Iterator[Part]:
    """Yield the files about objects, read from the cluster as its administrator."""
    server = state.read_server(directory)
    if server is None:
        return
    for name in RESOURCES:
        yield f"objects/{name}.json", lambda name=name: _objects(directory, server.url, name)  # type: ignore[misc]


def _objects(directory: Path, url: str, name: str) -> object:
    from kedge.cli.objects.connection import ApiSession
    from kedge.client.blocking import finish
    from kedge.client.client import Client
    from kedge.client.discovery import Discovery
    from kedge.client.login import Login
    from kedge.machinery.errors import StatusError

    login = Login(
        context="",
        file=directory / "cluster.json",
        server=url,
        ca_pem=(directory / "pki" / "ca.crt").read_bytes(),
        token=secrets(directory)[0],
    )

    async def read() -> list[dict[str, Any]]:
        client = Client(login.blocking_transport(), user_agent="kedge-support-bundle")
        try:
            session = ApiSession(login, client, Discovery(client))
            [target] = await session.targets([name])
            return await session.list(target.resource, "")
        finally:
            await client.close()

    try:
        return {"items": finish(read())}
    except StatusError as error:
        raise Failure(str(error)) from error
