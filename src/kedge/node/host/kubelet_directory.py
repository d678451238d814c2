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
DEVICE_PLUGINS: Final = WELL_KNOWN / "device-plugins"
SHARED_RECORD: Final = "shared-mount"
_BOUND: Final = "bound"


class KubeletDirectory:
    """One node's directory. Only one node of a machine has it at the well-known path; the pods of
    others see theirs there."""

    def __init__(self, root: Path, own: Path, device_plugins: Path) -> None:
        """`own` is a directory of the agent alone. `device_plugins`, where device plugins
        register, may be outside of `root`."""
        self.root = root
        self._device_plugins = device_plugins
        self._record = own / SHARED_RECORD

    def on_machine(self, path: str) -> Path:
        """Return where a path that a pod or driver names is on this machine."""
        named = Path(os.path.normpath(path))
        if named.is_relative_to(DEVICE_PLUGINS):
            return self._device_plugins / named.relative_to(DEVICE_PLUGINS)
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
        top = self.root.resolve()
        if not place.resolve().is_relative_to(top):
            return
        is_shared, is_known = mounts.is_shared(top), self._record.exists()
        if is_shared and is_known:
            return
        present = mounts.below(top)
        if any(each != str(top) for each in present) or (present and not (is_shared or is_known)):
            # They are not of drivers of this node, and a further mount of the directory would
            # cover them, so that they could not be unmounted.
            log.warning("directory not shared, because it has mounts directory=%s", top)
            return
        self._record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._record.write_text(f"{top}\n{'' if is_shared else _BOUND}")
        if not is_shared:
            if not present:
                libc.mount(str(top), str(top), flags=libc.MS_BIND)
            libc.mount("", str(top), flags=libc.MS_SHARED)
        log.info("directory shared with pods directory=%s", top)


def unshare(node: Path) -> str:
    """Unmount what drivers of an agent that has ended left in its directory, and undo `share`;
    return the problem, or an empty text. `node` is the directory of the node."""
    record = node / "devices" / SHARED_RECORD
    try:
        for place in mounts.below(node / "kubelet"):
            libc.unmount(place)
        top, _, how = record.read_text().partition("\n")
        for place in mounts.below(Path(top)):
            if place != top or how == _BOUND:
                libc.unmount(place)
        record.unlink()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot unmount the directory of drivers: {error}"
    return ""
