"""The clusters of this user on this machine: one entry per name under the state root.

An entry is the cluster's directory or, for one kept elsewhere, a link to it; a link to a directory
that is gone counts for nothing.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kedge.cli.cluster import server_parts, state
from kedge.cli.failure import Failure


class ClusterLocation(NamedTuple):
    """Which cluster a command is about."""

    root: Path
    """The state root: the default place of clusters, and the list of all of them."""
    name: str
    directory: Path | None
    """Its directory, if given; the name is then ignored."""

    def __str__(self) -> str:
        return f"in {self.directory}" if self.directory else f'"{self.name}"'


class RegisteredCluster(NamedTuple):
    """A cluster on this machine."""

    cluster: state.ClusterRecord
    directory: Path


def find(where: ClusterLocation) -> RegisteredCluster | None:
    """Return the chosen cluster; None if it does not exist."""
    directory = where.directory or resolve(where.root, where.name)
    try:
        cluster = state.read(directory)
    except state.RecordDamaged:
        # It can still be stopped and deleted, and `kedge up` recreates the record.
        cluster = state.ClusterRecord(name=where.name)
    return RegisteredCluster(cluster, directory) if cluster else None


def absent(where: ClusterLocation) -> Failure:
    """Return the failure for a cluster that does not exist; the message names those that do."""
    names = [each.cluster.name for each in every(where.root)]
    if not names:
        return Failure(f"there is no cluster {where} here, and no other: 'kedge up' starts one")
    return Failure(
        f"there is no cluster {where} here: choose one with --name, as in '--name {names[0]}'; the"
        f" clusters are {', '.join(names)}, and 'kedge up' starts another"
    )


def find_to_delete(where: ClusterLocation) -> RegisteredCluster | None:
    """The same, also if another version of kedge has arranged the cluster."""
    try:
        return find(where)
    except state.UnknownStateLayout:
        directory = where.directory or resolve(where.root, where.name)
        return RegisteredCluster(state.ClusterRecord(name=where.name), directory)


def resolve(root: Path, name: str) -> Path:
    """The directory of the cluster with that name, whether it is there or not."""
    entry = root / name
    # Unlike Path.is_symlink, this is False where we may not look: to read the cluster says why.
    return entry.resolve() if os.path.islink(entry) else entry


def every(root: Path) -> Iterator[RegisteredCluster]:
    """All clusters, by name."""
    for entry in _entries(root):
        directory = resolve(root, entry.name)
        with contextlib.suppress(Failure, OSError):
            if cluster := state.read(directory):
                yield RegisteredCluster(cluster, directory)


def _entries(root: Path) -> list[Path]:
    """Return what may be a cluster; what is being restored has a hidden name."""
    found = root.iterdir() if root.is_dir() else ()
    return sorted(each for each in found if not each.name.startswith("."))


def damaged(root: Path) -> Iterator[RegisteredCluster]:
    """The clusters whose record is lost or damaged. `kedge up` makes the record again."""
    for entry in _entries(root):
        directory = resolve(root, entry.name)
        try:
            state.read(directory)
        except state.RecordDamaged:
            yield RegisteredCluster(state.ClusterRecord(name=entry.name), directory)
        except (Failure, OSError):
            continue


def strange(root: Path) -> Iterator[tuple[RegisteredCluster, str]]:
    """The clusters that another version of kedge has arranged, by name, each with its layout. They
    can be listed and deleted, and nothing else."""
    for entry in _entries(root):
        directory = resolve(root, entry.name)
        try:
            state.read(directory)
        except state.UnknownStateLayout as unknown:
            yield RegisteredCluster(state.ClusterRecord(name=entry.name), directory), unknown.layout
        except (Failure, OSError):
            continue


def joined(root: Path) -> Iterator[Path]:
    """The directories that hold no cluster, but nodes that have joined one elsewhere."""
    for entry in _entries(root):
        directory = resolve(root, entry.name)
        with contextlib.suppress(Failure, OSError):
            if state.read(directory) is None and holds_nodes(directory):
                yield directory


def holds_nodes(directory: Path) -> bool:
    return bool(node_directories(directory))


def node_directories(directory: Path) -> list[Path]:
    """Return the directories of a cluster's nodes on this machine. Files and links among them are
    not nodes: kedge makes none there, and a link may lead anywhere."""
    try:
        found = list(os.scandir(directory / "nodes"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Failure(f"{directory}/nodes cannot be read: {error.strerror}") from error
    return sorted(Path(each.path) for each in found if each.is_dir(follow_symlinks=False))


def check_free(root: Path, name: str, directory: Path) -> None:
    """Fail if to register the cluster would hide another one of the same name."""
    entry = root / name
    if _leads_to(entry, directory):
        return
    if entry.is_symlink():
        if server_parts.any_running(entry.resolve()):
            raise Failure(
                f'a cluster "{name}" is running in {entry.resolve()}: choose another --name, or'
                f" stop that one with 'kedge down --name {name}'"
            )
    elif entry.exists():
        raise Failure(
            f'there is a cluster "{name}" in {entry}: choose another --name, or remove that one'
            f" with 'kedge down --name {name} --purge'"
        )


def register(root: Path, name: str, directory: Path) -> None:
    """Have the cluster listed under its name, wherever its directory is."""
    entry = root / name
    if not _leads_to(entry, directory):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry.unlink(missing_ok=True)
        entry.symlink_to(directory.resolve())


def _leads_to(entry: Path, directory: Path) -> bool:
    return entry.resolve() == directory.resolve()


def forget(root: Path, name: str, directory: Path) -> None:
    """Remove the cluster from the list."""
    entry = root / name
    if entry.is_symlink() and entry.resolve() == directory.resolve():
        entry.unlink()
