"""Writes CDI specs: the additions of the devices of a claim to containers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kedge.machinery import atomic

VERSION: Final = "0.6.0"
CLASS: Final = "claim"


class CdiDeviceNode(msgspec.Struct, frozen=True, kw_only=True):
    """A device node for a container."""

    path: str
    """In the container."""
    host_path: str = ""
    """On the machine, if that is another path."""
    permissions: str = "rw"


class CdiMount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of the machine for a container."""

    container_path: str
    host_path: str
    read_only: bool = False


class ContainerEdits(msgspec.Struct, frozen=True, kw_only=True):
    """The additions of a device to a container."""

    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    device_nodes: Sequence[CdiDeviceNode] = ()
    mounts: Sequence[CdiMount] = ()

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "env": [f"{name}={value}" for name, value in self.env.items()],
            "deviceNodes": [_node(each) for each in self.device_nodes],
            "mounts": [_mount(each) for each in self.mounts],
        }
        return {name: value for name, value in found.items() if value}


class CdiSpecs:
    """The specs of one driver: a file for each claim, with a CDI device for each device."""

    def __init__(self, directory: Path, driver: str) -> None:
        self.directory = directory
        self._driver = driver

    def path(self, uid: str) -> Path:
        """Return the file of a claim."""
        return self.directory / f"{self._driver}-{CLASS}-{uid}.json"

    def write(self, uid: str, edits: Mapping[str, ContainerEdits]) -> dict[str, str]:
        """Write the spec of a claim; return the id of the CDI device for each device. The ids hold
        the uid: runtimes may cache specs, so that no id may get another meaning."""
        names = {device: f"{uid}-{device}" for device in edits}
        kind = f"{self._driver}/{CLASS}"
        spec = {
            "cdiVersion": VERSION,
            "kind": kind,
            "devices": [
                {"name": names[device], "containerEdits": each.document()}
                for device, each in edits.items()
            ],
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        self._remove_unfinished(uid)
        atomic.write(self.path(uid), json.dumps(spec, indent=1).encode(), mode=0o644)
        return {device: f"{kind}={name}" for device, name in names.items()}

    def remove(self, uid: str) -> None:
        """Remove the spec of a claim, if there is one."""
        self.path(uid).unlink(missing_ok=True)
        self._remove_unfinished(uid)

    def _remove_unfinished(self, uid: str) -> None:
        """Remove files of a driver that was killed while it wrote. The kubelet makes one call at a
        time about a claim, so no other process writes them now."""
        for each in self.directory.glob(f".{self.path(uid).name}.*"):
            each.unlink(missing_ok=True)


def _node(node: CdiDeviceNode) -> dict[str, str]:
    host = {"hostPath": node.host_path} if node.host_path else {}
    return {"path": node.path, **host, "permissions": node.permissions}


def _mount(mount: CdiMount) -> dict[str, Any]:
    options = ["bind", "ro" if mount.read_only else "rw"]
    return {
        "containerPath": mount.container_path,
        "hostPath": mount.host_path,
        "options": options,
    }
