"""A CNI plugin that leaves the network of pods to kedge.

A runtime makes the network namespace of a sandbox only if it has a CNI network, and has a plugin
connect it. This plugin does nothing and answers with an address for documentation; afterwards
kedge attaches the namespace to its own bridge, so that Services, names, network policies and host
ports of pods work as with kedge's own runtime.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kedge.machinery import atomic
from kedge.node.runtime.runtime import RuntimeFailure

PLUGIN: Final = "kedge-network"
CONFIG: Final = "10-kedge.conflist"
_ENDINGS: Final = (".conf", ".conflist", ".json")
_NETWORK: Final = b"""\
{"cniVersion": "0.4.0", "name": "kedge", "plugins": [{"type": "kedge-network"}]}
"""
_SCRIPT: Final = b"""\
#!/bin/sh
# Written by kedge: it attaches pods to its own network, after this plugin.
case "$CNI_COMMAND" in
ADD) printf '{"cniVersion":"0.4.0","interfaces":[{"name":"%s",' "$CNI_IFNAME"
     printf '"sandbox":"%s"}],' "$CNI_NETNS"
     printf '"ips":[{"version":"4","interface":0,"address":"192.0.2.1/32"}]}\\n' ;;
VERSION) echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.0","0.3.1","0.4.0"]}' ;;
esac
"""
LOOPBACK: Final = "loopback"
"""A plugin that runtimes call for every sandbox."""


class CniDirectories(NamedTuple):
    """Where a runtime looks for networks and plugins."""

    networks: Path = Path("/etc/cni/net.d")
    plugins: Path = Path("/opt/cni/bin")


def directories(info: Mapping[str, str]) -> CniDirectories:
    """Return the directories in the verbose status of a runtime, else the usual ones."""
    known = CniDirectories()
    try:
        found = msgspec.json.decode(info.get("cniconfig", "{}"))
        networks, plugins = found.get("PluginConfDir"), found.get("PluginDirs")
    except (msgspec.DecodeError, AttributeError):
        return known
    return CniDirectories(
        Path(networks) if networks else known.networks,
        Path(plugins[0]) if plugins else known.plugins,
    )


def install(places: CniDirectories) -> bool:
    """Write the network and its plugin; return whether the network is new. Raises RuntimeFailure
    if the runtime has another network."""
    names = os.listdir(places.networks) if places.networks.is_dir() else []
    networks = sorted(name for name in names if name.endswith(_ENDINGS))
    if networks and networks[0] != CONFIG:
        raise RuntimeFailure(
            f"the container runtime has the network {places.networks / networks[0]}, but kedge"
            " attaches pods to its own: move the file away, or give the runtime another directory"
            " for networks (containerd: conf_dir, CRI-O: network_dir)"
        )
    try:
        for directory in places:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        _write_program(places.plugins / PLUGIN)
        if not (places.plugins / LOOPBACK).exists():
            _write_program(places.plugins / LOOPBACK)
        if not networks:
            _write(places.networks / CONFIG, _NETWORK, 0o644)
    except OSError as error:
        raise RuntimeFailure(
            f"cannot write the network of the container runtime: {error}"
        ) from error
    return not networks


def _write_program(path: Path) -> None:
    if not path.exists() or path.read_bytes() != _SCRIPT:
        _write(path, _SCRIPT, 0o755)


def _write(path: Path, content: bytes, mode: int) -> None:
    atomic.write(path, content)
    path.chmod(mode)
