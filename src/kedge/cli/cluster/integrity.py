"""Checks that a cluster which has run still has its files, before a start replaces them."""

from pathlib import Path
from typing import Final

import msgspec

from kedge.cli.cluster import state
from kedge.cli.failure import Failure
from kedge.settings.parse import etcd_endpoints

DATABASE: Final = "store.db"
_KEYS: Final = ("pki/ca.crt", "pki/ca.key")
_TOKEN: Final = "token"


def check(directory: Path, cluster: state.ClusterRecord, *, store: str) -> list[str]:
    """Fail if a start would create an empty store or new keys in place of lost ones.

    Returns messages about files that will be recreated. `store` is the setting --store.
    """
    if not cluster.has_run:
        return []
    notes: list[str] = []
    if cluster.etcd and not etcd_endpoints(store):
        raise _elsewhere(cluster)
    if etcd_endpoints(store) and not cluster.etcd and DATABASE in cluster.kept:
        notes.append(
            f"the objects in {directory}/{DATABASE} are not used, those in etcd are: 'kedge export'"
            " copies objects to an empty etcd"
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
    needs_database = store == "sqlite" and _expects_database(directory, cluster)
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
    etcd = store if etcd_endpoints(store) else ""
    state.write(directory, msgspec.structs.replace(cluster, kept=kept, etcd=etcd))


def _is_lost(directory: Path, file: str) -> bool:
    try:
        return (directory / file).stat().st_size == 0
    except FileNotFoundError:
        return True


def _expects_database(directory: Path, cluster: state.ClusterRecord) -> bool:
    if cluster.kept:
        return DATABASE in cluster.kept
    # An older kedge recorded nothing, but such a file exists only beside a database.
    return (directory / f"{DATABASE}.lock").exists()


def _lost_database(directory: Path) -> state.DamagedState:
    return state.DamagedState(
        f"{directory}/{DATABASE}, which holds all objects of the cluster, is missing or empty,"
        " although the cluster has run: nothing was changed. Put the file back from a copy of the"
        f" directory, or begin anew with 'kedge down --state {directory} --purge', then 'kedge up'"
    )


def _elsewhere(cluster: state.ClusterRecord) -> Failure:
    return Failure(
        f'cluster "{cluster.name}" has its objects in etcd: nothing was changed. Start it with'
        f" --store {cluster.etcd}, or under another --name with a store of its own"
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
