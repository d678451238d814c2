"""`kedge volume du`: the disk usage of the local volumes on this machine."""

from pathlib import Path
from typing import Final

from kedge.cli.cluster import deadline, registry, volume_data
from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.cluster.volume_data import VolumeData, amount
from kedge.cli.failure import Failure
from kedge.cli.output import printers

_SECONDS: Final = 120.0
"""How long the measurement may take: pods decide how many files a volume has."""
_HEADS: Final = ("NODE", "VOLUME", "USED", "SIZE", "KIND")


def show(where: ClusterLocation, output: str | None) -> int:
    """Print the usage of each volume and the sum."""
    directory = _directory(where)
    with deadline.within(_SECONDS, lambda: _late(where)):
        found = volume_data.stored([directory])
    if output:
        items = [facts(each) for each in found]
        print(printers.document({"items": items, "bytes": _sum(found)}, output))
    elif found:
        rows = [cells(each) for each in found]
        print(printers.table([_HEADS, *rows, ("", "total", amount(_sum(found)), "", "")]))
    else:
        print(f"Cluster {where} has no local volumes on this machine.")
    return 0


def _directory(where: ClusterLocation) -> Path:
    """Return the directory of the cluster, or of nodes that have joined one elsewhere."""
    directory = where.directory or registry.resolve(where.root, where.name)
    if registry.find(where) is None and not registry.holds_nodes(directory):
        raise registry.absent(where)
    return directory


def _late(where: ClusterLocation) -> Failure:
    return Failure(
        f"the volumes of cluster {where} could not be measured within {_SECONDS:g} s: they have too"
        " many files; 'kedge volume list' shows their capacity"
    )


def _sum(found: list[VolumeData]) -> int:
    return sum(each.bytes for each in found)


def facts(volume: VolumeData) -> dict[str, object]:
    """Return a volume as JSON and YAML output show it."""
    record = volume.record
    return {
        "node": volume.node,
        "volume": volume.volume,
        "bytes": volume.bytes,
        "size": record.size if record is not None else None,
        "kind": kind(volume),
    }


def kind(volume: VolumeData) -> str:
    if volume.record is None:
        return "damaged"
    return "image" if volume.record.is_image else "directory"


def cells(volume: VolumeData) -> tuple[str, ...]:
    """Return the cells of a volume in the table."""
    size = amount(volume.record.size) if volume.record is not None else "<unknown>"
    return volume.node, volume.volume, amount(volume.bytes), size, kind(volume)
