"""The layouts of a cluster's directory, and the conversion from each one to the next.

To change the layout, append a conversion. `state.read` applies the conversions to what it reads, so
that every command understands older clusters; a start also writes the result (`layout_upgrade`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

FIRST: Final = 1
"""The oldest layout that is understood: that of the first kedge."""

Document = Mapping[str, Any]
"""The content of `cluster.json`."""
Exists = Callable[[str], bool]
"""Whether a file exists, by its path below the directory."""


class LayoutConversion(NamedTuple):
    """One step, from a layout to the next."""

    change: str
    """The difference between the two layouts, for messages."""
    record: Callable[[Document, Exists], Document]
    """Return the content of `cluster.json` in the new layout, without its number. It is pure, and
    leaves content that is converted already as it is: other commands than a start write what they
    have read under the old number."""


def _with_kept_files(document: Document, exists: Exists) -> Document:
    """Layout 2: a cluster that has run lists the files that must not be replaced. Before, that was
    guessed from the port of its server and from a lock file beside the database."""
    if document.get("kept") or not document.get("port"):
        return document
    database = ("store.db",) if exists("store.db.lock") else ()
    return {**document, "kept": ["pki/ca.crt", "pki/ca.key", *database, "token"]}


CONVERSIONS: Final = (
    LayoutConversion(
        "cluster.json lists the files that a start must not replace", _with_kept_files
    ),
)
"""The first one is from layout 1 to layout 2, the next one from 2 to 3, and so on."""
LAYOUT: Final = FIRST + len(CONVERSIONS)
"""The layout of this version of kedge."""


def pending(layout: int) -> tuple[LayoutConversion, ...]:
    """Return the conversions that a directory of this layout needs, in order."""
    return CONVERSIONS[layout - FIRST :]


def converted(document: Document, layout: int, exists: Exists) -> Document:
    """Return the content of `cluster.json` as this version of kedge has it, with its old number."""
    for step in pending(layout):
        document = step.record(document, exists)
    return document
