"""The configuration of CRI-O, which has no place in the messages of CRI: CRI-O serves it by HTTP at
the same socket."""

import asyncio
import tomllib
from pathlib import Path
from typing import Any, Final

from kedge.client.connection import HttpConnection, encode_request
from kedge.node.runtime.cri.cni_plugin import CniDirectories
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.web.exchange import Exchange

NAME: Final = "cri-o"
"""The name by which CRI-O introduces itself."""
_SECONDS: Final = 10.0
_MOST: Final = 1 << 20


async def network_directories(socket: Path) -> CniDirectories:
    """Return where a CRI-O looks for networks and plugins. Raises RuntimeFailure."""
    try:
        async with asyncio.timeout(_SECONDS):
            text = await _text(socket)
        return directories(text)
    except (OSError, TimeoutError, ValueError) as error:
        raise RuntimeFailure(
            f"cannot read the configuration of CRI-O at {socket}: {error}"
        ) from error


async def _text(socket: Path) -> str:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(HttpConnection, str(socket))
    try:
        await connection.ask(encode_request("GET", "/config", "localhost", (), b""))
    except BaseException:
        connection.abort()
        raise
    content = await Exchange(connection).whole(_MOST)
    if connection.status != 200:
        raise ValueError(f"status {connection.status}")
    return content.decode()


def directories(text: str) -> CniDirectories:
    """Return the directories in a configuration, else the usual ones. Raises ValueError."""
    known = CniDirectories()
    network = _table(_table(tomllib.loads(text), "crio"), "network")
    plugins = network.get("plugin_dirs") or [known.plugins]
    return CniDirectories(Path(network.get("network_dir") or known.networks), Path(plugins[0]))


def _table(of: dict[str, Any], name: str) -> dict[str, Any]:
    found = of.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no table")
    return found
