"""Convert the directory of a cluster that an older kedge has arranged, at a start.

First a copy is made, then one file is replaced, which carries the number of the layout. So after a
crash the directory has the old layout or the new one, and the next start does the rest.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from kedge.cli.backup import archive
from kedge.cli.cluster import state
from kedge.cli.cluster.conversions import LAYOUT, pending
from kedge.cli.cluster.integrity import DATABASE
from kedge.cli.failure import Failure
from kedge.cli.output.printers import size
from kedge.machinery import reserve_files

FOLDER: Final = "copies"
_SPARE_BYTES: Final = 4 << 20
"""Space for keys and records beside the database."""


def upgrade(
    directory: Path, cluster: state.ClusterRecord, now: datetime, say: Callable[[str], None]
) -> state.ClusterRecord:
    """Return the record of the cluster after its directory has the present layout. For callers that
    are `changing` the cluster, which does not run."""
    if cluster.layout == LAYOUT:
        return cluster
    copy = _copy(directory, cluster, now)
    changes = "; ".join(step.change for step in pending(cluster.layout))
    new = msgspec.structs.replace(cluster, layout=LAYOUT)
    try:
        state.write(directory, new)
    except OSError as error:
        raise state.unwritable(directory, error) from error
    say(
        f'Converted cluster "{cluster.name}" from layout {cluster.layout} to {LAYOUT}: {changes}.\n'
        f"The cluster as it was is in {copy}: 'kedge restore' takes it."
    )
    return new


def _copy(directory: Path, cluster: state.ClusterRecord, now: datetime) -> Path:
    """Back up the cluster into its directory, and return the file."""
    _check_space(directory)
    folder = directory / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for partial in folder.glob(".*"):
            # A start that was killed has left it.
            partial.unlink()
    except OSError as error:
        raise state.unwritable(directory, error) from error
    target = folder / f"layout-{cluster.layout}-{now:%Y%m%dT%H%M%SZ}.kedge"
    archive.pack(directory, cluster, target, now)
    return target


def _check_space(directory: Path) -> None:
    # The database is copied first, then packed, and packing may save nothing.
    needed = 2 * sum(_bytes(directory / name) for name in (DATABASE, f"{DATABASE}-wal"))
    needed += _SPARE_BYTES
    free = reserve_files.free_bytes(directory)
    if free < needed:
        raise Failure(
            f"{directory} was arranged by an older kedge, and there is no space for the copy that"
            f" is made before it is converted: {size(needed)} are needed, {size(free)} are free."
            " Nothing was changed: make space, then run the command again"
        )


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
