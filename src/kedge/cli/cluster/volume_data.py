"""The data of claims in the directory of a cluster, which --purge would delete."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kedge.cli.cluster import registry
from kedge.cli.failure import Failure

if TYPE_CHECKING:
    from kedge.node.storage.local_store import LocalVolumeRecord, LocalVolumeStore


class VolumeData(NamedTuple):
    """The data of one volume."""

    node: str
    volume: str
    bytes: int
    """On disk."""
    record: "LocalVolumeRecord | None"
    """None if it is damaged."""


def stored(directories: Iterable[Path]) -> list[VolumeData]:
    """Return the data of all volumes of the nodes in some directories of clusters. Raises a Failure
    if they cannot be read."""
    nodes = [node for each in directories for node in registry.node_directories(each)]
    return [volume for node in nodes for volume in _of_node(node)]


def _of_node(node: Path) -> Iterator[VolumeData]:
    from kedge.node.storage.local_store import LocalVolumeStore
    from kedge.node.volumes.usage import disk_usage

    store = LocalVolumeStore(node / "volumes")
    try:
        for handle in store.handles():
            used = disk_usage([store.directory / handle])
            yield VolumeData(node.name, handle, used, _record(store, handle))
    except OSError as error:
        raise Failure(f"the volumes in {store.directory} cannot be read: {error}") from error


def _record(store: "LocalVolumeStore", handle: str) -> "LocalVolumeRecord | None":
    from kedge.node.storage.volume_driver import DriverError

    try:
        found = store.find(handle)
    except DriverError:
        return None
    return found.record if found is not None else None


def confirm_deletion(found: Sequence[VolumeData]) -> None:
    """Ask before data are deleted; raises a Failure unless the answer is yes."""
    if not found:
        return
    text = f"{described(found)} would be deleted"
    if not sys.stdin.isatty():
        raise Failure(
            f"{text}; nothing was changed: add --yes to delete them, or leave out --purge to keep"
            " them"
        )
    for each in found:
        print(f"  {each.node}/{each.volume}  {amount(each.bytes)}")
    print(f"{text}. Type 'yes' to delete: ", end="", flush=True)
    if sys.stdin.readline().strip() != "yes":
        raise Failure("nothing was changed: the answer was not 'yes'")


def described(found: Sequence[VolumeData]) -> str:
    """Return how much data there are."""
    total = amount(sum(each.bytes for each in found))
    return f"the data of {len(found)} volume{'s' if len(found) > 1 else ''} ({total})"


def amount(size: int) -> str:
    """Return a size for people: `4.0Ki`, `12Mi`."""
    value, unit = float(size), ""
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):  # noqa: B007
        if value < 1024:
            break
        value /= 1024
    return f"{value:.1f}{unit}" if unit and value < 10 else f"{value:.0f}{unit}"
