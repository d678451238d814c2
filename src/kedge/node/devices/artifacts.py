"""Combines the Allocate responses of device plugins to the grant of one container."""

import logging
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from kedge.deviceplugin import wire
from kedge.deviceplugin.messages import ContainerAllocateResponse, DeviceSpec
from kedge.node.devices import cdi
from kedge.node.devices.ledger import DeviceAllocation
from kedge.node.pod.dependencies import DeviceGrant
from kedge.node.runtime.runtime import ContainerDevice, ContainerMount

T = TypeVar("T")

log = logging.getLogger(__name__)


def device_grant(
    holdings: Iterable[DeviceAllocation],
    cdi_directories: Sequence[Path],
    nodes: Path,
    claimed: Sequence[str] = (),
) -> DeviceGrant:
    """Return the grant of a container's allocations, and of the CDI devices of its claims. If two
    resources set the same key, the first by name wins. CDI devices are read from `cdi_directories`,
    and missing device nodes are created in `nodes`. Raises ConfigFailure."""
    env: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, ContainerMount] = {}
    devices: dict[str, ContainerDevice] = {}
    names: list[str] = []
    for holding in sorted(holdings, key=lambda each: each.resource):
        answer = wire.decode(ContainerAllocateResponse, holding.response)
        _add(env, answer.envs.items(), holding, "variable")
        _add(annotations, answer.annotations.items(), holding, "annotation")
        _add(mounts, _mounts(answer), holding, "mount")
        _add(devices, _devices(answer.devices), holding, "device")
        names += [each.name for each in answer.cdi_devices]
    named = cdi.resolve([*names, *claimed], cdi_directories, nodes)
    return DeviceGrant(
        env={**named.env, **env},
        annotations=annotations,
        mounts=[*mounts.values(), *(m for m in named.mounts if m.container_path not in mounts)],
        devices=[*devices.values(), *(d for d in named.devices if d.container_path not in devices)],
        groups=named.groups,
    )


def _add(
    into: dict[str, T], entries: Iterable[tuple[str, T]], holding: DeviceAllocation, what: str
) -> None:
    for key, value in entries:
        if into.setdefault(key, value) != value:
            log.warning(
                "two device plugins set the same %s=%s container=%s; ignoring the one of %s",
                what,
                key,
                holding.owner.container,
                holding.resource,
            )


def _mounts(answer: ContainerAllocateResponse) -> Iterator[tuple[str, ContainerMount]]:
    for each in answer.mounts:
        yield (
            each.container_path,
            ContainerMount(
                container_path=each.container_path,
                host_path=each.host_path,
                read_only=each.read_only,
                makes_directory=True,
            ),
        )


def _devices(specs: Iterable[DeviceSpec]) -> Iterator[tuple[str, ContainerDevice]]:
    for spec in specs:
        for inside, outside in _nodes(spec.container_path, spec.host_path):
            yield (
                inside,
                ContainerDevice(
                    container_path=inside, host_path=outside, permissions=spec.permissions
                ),
            )


def _nodes(inside: str, outside: str) -> Iterator[tuple[str, str]]:
    """Return device nodes; a directory stands for all nodes in it, as in other runtimes."""
    if not os.path.isdir(outside):
        yield inside or outside, outside
        return
    for entry in sorted(os.scandir(outside), key=lambda each: each.name):
        path = f"{inside or outside}/{entry.name}"
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield from _nodes(path, entry.path)
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            yield path, entry.path
