"""Checks of the files of a cluster, before a start opens or replaces them."""

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kedge.cli.cluster import state
from kedge.cli.failure import Failure
from kedge.settings.parse import is_elsewhere

DATABASE: Final = "store.db"
_KEYS: Final = ("pki/ca.crt", "pki/ca.key")
_TOKEN: Final = "token"
_NODE: Final = (".", "pki", "network", "runtime")
"""The directories of a node whose files its programs open; others have files of containers."""
_CLUSTER: Final = (".", "pki", "pki/*", *(f"nodes/*/{place}" for place in _NODE))
"""The same of a cluster."""
_TORN_DOWN: Final = ("network", "runtime")
"""The directories of a node whose files are needed to end what it runs."""


class StoreElsewhere(Failure):
    """The command names another store than the one that has the objects of the cluster."""


def check_types(directory: Path) -> None:
    """Fail if a FIFO, a device or a link to nothing is among the files of a cluster.

    To open a FIFO blocks until another process writes to it, a device may never end, and a link
    leads anywhere. The programs of a cluster open their files in many places, so a start looks at
    all of them first.
    """
    _check_types(directory, _CLUSTER)


def check_node_types(directory: Path) -> None:
    """The same for the files of a node that are needed to end what it runs."""
    _check_types(directory, _TORN_DOWN)


def _check_types(directory: Path, places: Sequence[str]) -> None:
    for path in _entries(directory, places):
        if _is_strange(path):
            raise state.irregular(path)


def _entries(directory: Path, places: Sequence[str]) -> Iterator[Path]:
    for place in places:
        for folder in [directory] if place == "." else sorted(directory.glob(place)):
            if folder.is_dir() and not folder.is_symlink():
                yield from sorted(folder.iterdir())


def _is_strange(path: Path) -> bool:
    try:
        # Followed: a directory such as images may be a link to another disk.
        mode = path.stat().st_mode
    except FileNotFoundError:
        return path.is_symlink()
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def check(directory: Path, cluster: state.ClusterRecord, *, store: str) -> list[str]:
    """Fail if a start would create an empty store or new keys in place of lost ones.

    Returns messages about files that will be recreated. `store` is the setting --store.
    """
    if not cluster.has_run:
        return []
    notes: list[str] = []
    if cluster.elsewhere and not is_elsewhere(store):
        raise _elsewhere(cluster)
    before = cluster.elsewhere
    if not before and DATABASE in cluster.kept:
        before = f"{directory}/{DATABASE}"
    if is_elsewhere(store) and before and _kind(before) != _kind(store):
        kind = _kind(store)
        notes.append(
            f"the objects in {before} are not used, those in {kind} are: 'kedge export' copies"
            f" objects to an empty {kind}"
        )
    if _is_lost(directory, _KEYS[1]):
        raise _lost_authority(directory)
    if _is_lost(directory, _KEYS[0]):
        notes.append(f"{directory}/{_KEYS[0]} was lost: it is made again from its key")
    if _is_lost(directory, "pki/sa.key") and not _is_lost(directory, "pki/sa.pub"):
        raise state.DamagedState(
            f"{directory}/pki/sa.key, which signs the tokens of service accounts, is missing or"
            " empty: put it back from a copy of the directory. To have a new one made, which voids"
            " every such token, remove sa.key and sa.pub"
        )
    needs_database = store == "sqlite" and DATABASE in cluster.kept
    if needs_database and _is_lost(directory, DATABASE):
        raise _lost_database(directory)
    if _is_lost(directory, _TOKEN):
        notes.append(
            f"{directory}/{_TOKEN} was lost: a new administrator's token is made, and kubeconfig"
            " files with the old one no longer work"
        )
    return notes


def record_files(directory: Path, *, store: str) -> None:
    """Record which files a ready server has made, and its store, for the next `check`."""
    cluster = state.read(directory)
    if cluster is None:
        return
    made = (*_KEYS, _TOKEN, *((DATABASE,) if store == "sqlite" else ()))
    kept = tuple(sorted({*cluster.kept, *made}))
    elsewhere = store if is_elsewhere(store) else ""
    state.write(directory, msgspec.structs.replace(cluster, kept=kept, elsewhere=elsewhere))


def _kind(store: str) -> str:
    """Return the kind of a store elsewhere: `etcd` or `postgresql`."""
    return store.partition("://")[0]


def _is_lost(directory: Path, file: str) -> bool:
    try:
        return (directory / file).stat().st_size == 0
    except FileNotFoundError:
        return True


def _lost_database(directory: Path) -> state.DamagedState:
    return state.DamagedState(
        f"{directory}/{DATABASE}, which holds all objects of the cluster, is missing or empty,"
        " although the cluster has run: nothing was changed. Put the file back from a copy of the"
        f" directory, or begin anew with 'kedge down --state {directory} --purge', then 'kedge up'"
    )


def _elsewhere(cluster: state.ClusterRecord) -> StoreElsewhere:
    return StoreElsewhere(
        f'cluster "{cluster.name}" has its objects in {_kind(cluster.elsewhere)}: nothing was'
        f" changed. Start it with --store {cluster.elsewhere}, or under another --name with a store"
        " of its own"
    )


def _lost_authority(directory: Path) -> state.DamagedState:
    return state.DamagedState(
        f"{directory}/pki/ca.key, the key of the cluster's certificate authority, is missing or"
        " empty, although the cluster has run: with another one no client and no node would trust"
        " the cluster. Nothing was changed. Put ca.key and ca.crt back from a copy of the"
        " directory. To keep the objects under a new authority, move the directory away, start the"
        f" cluster anew, stop it, and put the old {DATABASE} (and {DATABASE}-wal, if there is one)"
        " into its directory. To begin anew"
        f" without them: 'kedge down --state {directory} --purge', then 'kedge up'"
    )
