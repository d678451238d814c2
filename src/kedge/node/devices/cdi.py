"""Container Device Interface: reads the edits for named devices from CDI spec files."""

import contextlib
import json
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kedge.node.pod.dependencies import ConfigFailure, DeviceGrant
from kedge.node.runtime.runtime import ContainerDevice, ContainerMount

log = logging.getLogger(__name__)

DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The directories of specs; a spec in a later directory overrides earlier ones."""
_UNABLE: Final = ("hooks", "intelRdt", "netDevices")

Json = Mapping[str, Any]


def resolve(names: Iterable[str], directories: Sequence[Path], nodes: Path) -> DeviceGrant:
    """Return the edits for these devices; `nodes` is the directory for device nodes that the
    machine does not have. Raises ConfigFailure for an unknown device or an unsupported edit."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return DeviceGrant()
    edits, missing = _edits(wanted, directories)
    if missing:
        raise ConfigFailure(
            f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        )
    if found := _unsupported(edits):
        raise ConfigFailure(
            f"CDI device injection failed: {', '.join(wanted)}: this node does not support"
            f" {', '.join(found)}"
        )
    return _grant_of(edits, nodes)


def unsupported(names: Iterable[str], directories: Sequence[Path]) -> list[str]:
    """Return the edits of these devices that no container on this node can get."""
    wanted = list(dict.fromkeys(names))
    return _unsupported(_edits(wanted, directories)[0]) if wanted else []


def _edits(names: Iterable[str], directories: Sequence[Path]) -> tuple[list[Json], list[str]]:
    """Return the edits for devices, and the devices that no spec has."""
    specs = list(_specs(directories))
    edits: list[Json] = []
    missing: list[str] = []
    for name in names:
        kind, _, device = name.partition("=")
        spec, found = _find(specs, kind, device)
        if found is None:
            missing.append(name)
            continue
        general = spec.get("containerEdits") or {}
        edits += [general] if general not in edits else []
        edits.append(found.get("containerEdits") or {})
    return edits, missing


def _unsupported(edits: Iterable[Json]) -> list[str]:
    return list(dict.fromkeys(each for edit in edits for each in _UNABLE if edit.get(each)))


def _specs(directories: Sequence[Path]) -> Iterator[Json]:
    for directory in reversed(directories):
        if not directory.is_dir():
            continue
        for path in sorted(directory.iterdir()):
            if path.suffix in (".json", ".yaml", ".yml"):
                try:
                    spec = _read(path)
                except (OSError, ValueError) as error:
                    log.warning("invalid CDI spec file=%s error=%r", path, str(error))
                    continue
                if isinstance(spec, dict):
                    yield spec


def _read(path: Path) -> Any:
    text = path.read_text()
    if path.suffix == ".json":
        return json.loads(text)
    # Imported only if a spec is written in YAML: no other part of the agent needs it.
    from kedge.machinery import yaml_text

    return yaml_text.read(text)


def _find(specs: Iterable[Json], kind: str, name: str) -> tuple[Json, Json | None]:
    for spec in specs:
        if spec.get("kind") == kind:
            for device in spec.get("devices") or ():
                if device.get("name") == name:
                    return spec, device
    return {}, None


def _grant_of(edits: Sequence[Json], nodes: Path) -> DeviceGrant:
    env: dict[str, str] = {}
    mounts: list[ContainerMount] = []
    devices: list[ContainerDevice] = []
    groups: list[int] = []
    for edit in edits:
        for variable in edit.get("env") or ():
            key, _, value = str(variable).partition("=")
            env[key] = value
        mounts += [_mount(each) for each in edit.get("mounts") or ()]
        devices += [_device(each, nodes) for each in edit.get("deviceNodes") or ()]
        groups += [int(each) for each in edit.get("additionalGids") or ()]
    return DeviceGrant(env=env, mounts=mounts, devices=devices, groups=groups)


def _mount(told: Json) -> ContainerMount:
    return ContainerMount(
        container_path=str(told["containerPath"]),
        host_path=str(told["hostPath"]),
        read_only="ro" in (told.get("options") or ()),
    )


def _device(told: Json, nodes: Path) -> ContainerDevice:
    path = str(told["path"])
    source = Path(told.get("hostPath") or path)
    if not source.exists() and "major" in told and "minor" in told:
        source = _made(str(told.get("type") or "c"), int(told["major"]), int(told["minor"]), nodes)
    return ContainerDevice(
        container_path=path,
        host_path=str(source),
        permissions=str(told.get("permissions") or "rwm"),
    )


def _made(kind: str, major: int, minor: int, nodes: Path) -> Path:
    """Create a device node for numbers without a file on the machine."""
    path = nodes / f"{kind}-{major}-{minor}"
    mode = stat.S_IFBLK if kind == "b" else stat.S_IFCHR
    try:
        nodes.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mknod(path, mode | 0o666, os.makedev(major, minor))
        os.chmod(path, 0o666)
    except OSError as error:
        raise ConfigFailure(
            f"CDI device injection failed: no device node {kind} {major}:{minor}: {error.strerror}"
        ) from error
    return path
