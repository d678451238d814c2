"""CDI: what the Container Device Interface says a named device needs, read from its spec files."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from kedge.node.parts import ConfigFailure, Given
from kedge.node.runtime.runtime import Device, Mount

log = logging.getLogger(__name__)

DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where the specs are; what stands in a later directory counts."""
_UNABLE: Final = ("hooks", "intelRdt", "netDevices")

Json = Mapping[str, Any]


def resolve(names: Iterable[str], directories: Sequence[Path] = DIRECTORIES) -> Given:
    """What containers with these devices get. Raises ConfigFailure for one that is unknown, or
    that needs what this runtime does not do."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return Given()
    specs = list(_specs(directories))
    edits: list[Json] = []
    missing: list[str] = []
    for name in wanted:
        kind, _, device = name.partition("=")
        spec, found = _find(specs, kind, device)
        if found is None:
            missing.append(name)
            continue
        general = spec.get("containerEdits") or {}
        edits += [general] if general not in edits else []
        edits.append(found.get("containerEdits") or {})
    if missing:
        raise ConfigFailure(
            f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        )
    return _given(edits, wanted)


def _specs(directories: Sequence[Path]) -> Iterator[Json]:
    for directory in reversed(directories):
        if not directory.is_dir():
            continue
        for path in sorted(directory.iterdir()):
            if path.suffix in (".json", ".yaml", ".yml"):
                try:
                    spec = _read(path)
                except (OSError, ValueError, yaml.YAMLError) as error:
                    log.warning("unusable CDI spec file=%s error=%r", path, str(error))
                    continue
                if isinstance(spec, dict):
                    yield spec


def _read(path: Path) -> Any:
    text = path.read_text()
    return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)


def _find(specs: Iterable[Json], kind: str, name: str) -> tuple[Json, Json | None]:
    for spec in specs:
        if spec.get("kind") == kind:
            for device in spec.get("devices") or ():
                if device.get("name") == name:
                    return spec, device
    return {}, None


def _given(edits: Sequence[Json], names: Sequence[str]) -> Given:
    env: dict[str, str] = {}
    mounts: list[Mount] = []
    devices: list[Device] = []
    groups: list[int] = []
    for edit in edits:
        if unable := [each for each in _UNABLE if edit.get(each)]:
            raise ConfigFailure(
                f"CDI device injection failed: {', '.join(names)}: this node does not do"
                f" {', '.join(unable)}"
            )
        for variable in edit.get("env") or ():
            key, _, value = str(variable).partition("=")
            env[key] = value
        mounts += [_mount(each) for each in edit.get("mounts") or ()]
        devices += [_device(each) for each in edit.get("deviceNodes") or ()]
        groups += [int(each) for each in edit.get("additionalGids") or ()]
    return Given(env=env, mounts=mounts, devices=devices, groups=groups)


def _mount(told: Json) -> Mount:
    return Mount(
        container_path=str(told["containerPath"]),
        host_path=str(told["hostPath"]),
        read_only="ro" in (told.get("options") or ()),
    )


def _device(told: Json) -> Device:
    path = str(told["path"])
    return Device(
        container_path=path,
        host_path=str(told.get("hostPath") or path),
        permissions=str(told.get("permissions") or "rwm"),
    )
