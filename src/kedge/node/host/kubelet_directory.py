"""The node's directory for plugins and drivers, which pods know as /var/lib/kubelet."""

import logging
import os
from pathlib import Path
from typing import Final

from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc

log = logging.getLogger(__name__)

WELL_KNOWN: Final = Path("/var/lib/kubelet")
"""The path in the manifests of drivers."""
SHARED_RECORD: Final = "shared-mount"


class KubeletDirectory:
    """One node's directory. Only one node of a machine has it at the well-known path; the pods of
    others see theirs there."""

    def __init__(self, root: Path, own: Path) -> None:
        """`own` is a directory of the agent alone."""
        self.root = root
        self._record = own / SHARED_RECORD

    def on_machine(self, path: str) -> Path:
        """Return where a path that a pod or driver names is on this machine."""
        named = Path(os.path.normpath(path))
        if named.is_relative_to(WELL_KNOWN):
            return self.root / named.relative_to(WELL_KNOWN)
        return Path(path)

    def in_pods(self, path: Path) -> Path:
        """Return how drivers in pods name a path of this machine."""
        if path.is_relative_to(self.root):
            return WELL_KNOWN / path.relative_to(self.root)
        return path

    def share(self, place: Path) -> None:
        """Let mounts that containers make at `place` appear on the machine, if it is in this
        directory. Raises OSError."""
        if not place.resolve().is_relative_to(self.root.resolve()) or mounts.is_shared(self.root):
            return
        present = mounts.below(self.root)
        if present and not (self._record.exists() and len(present) == 1):
            # Another mount of the directory would cover them: nobody could unmount them.
            log.warning("directory not shared, because it has mounts directory=%s", self.root)
            return
        self._record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._record.write_text(str(self.root))
        if not present:
            libc.mount(str(self.root), str(self.root), flags=libc.MS_BIND)
        libc.mount("", str(self.root), flags=libc.MS_SHARED)
        log.info("directory shared with pods directory=%s", self.root)


def unshare(own: Path) -> str:
    """Undo `share` of an agent that has ended; return the problem, or an empty text."""
    record = own / SHARED_RECORD
    try:
        root = Path(record.read_text())
        # All of them: drivers have ended, and the directory had no mounts before.
        for place in mounts.below(root):
            libc.unmount(place)
        record.unlink()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot unmount the shared directory: {error}"
    return ""
