"""The data of claims in the directory of a cluster, which --purge would delete."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kedge.cli.failure import Failure


class VolumeData(NamedTuple):
    """The data of one volume."""

    node: str
    volume: str
    bytes: int
    """On disk."""


def stored(directories: Iterable[Path]) -> list[VolumeData]:
    """Return the data of all volumes of the nodes in some directories of clusters."""
    from kedge.node.storage.local_store import LocalVolumeStore
    from kedge.node.volumes.usage import disk_usage

    return [
        VolumeData(node.parent.name, handle, disk_usage([node / handle]))
        for directory in directories
        for node in sorted(directory.glob("nodes/*/volumes"))
        for handle in LocalVolumeStore(node).handles()
    ]


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
