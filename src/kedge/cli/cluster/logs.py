"""The logs of a cluster's own processes."""

import contextlib
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kedge.cli.cluster.server_parts import is_server
from kedge.cli.failure import Failure

COMPONENTS: Final = ("server", "node", "supervisor", "restarter")
"""The words of `kedge logs` for processes of the cluster itself."""
_PAUSE: Final = 0.2
_CHUNK: Final = 1 << 16
_LONGEST: Final = 1 << 20
"""Bytes at the end of a log among which the last lines are looked for."""


def log_files(state: Path) -> list[Path]:
    """Return the logs of server, agents and supervisors."""
    patterns = ("*.log", "nodes/*/*.log", "nodes/*/*/*.log")
    return [file for each in patterns for file in sorted(state.glob(each))]


def component(word: str) -> tuple[str, str] | None:
    """Read `server`, `server-2`, `node` or `node/NAME`: the component and the node; None for other
    words."""
    if is_server(word):
        return word, ""
    name, slash, node = word.partition("/")
    if name not in COMPONENTS or (slash and (not node or name not in ("node", "supervisor"))):
        return None
    return name, node


def component_log(state: Path, name: str, node: str) -> Path:
    """Return the log of a component; raises Failure if it has none."""
    if is_server(name) or name == "restarter":
        path = state / f"{name}.log"
    else:
        path = _node_directory(state, node) / (
            "node.log" if name == "node" else "runtime/supervisor.log"
        )
    if not path.exists():
        raise Failure(f"there is no {path}: the {name} has not run yet; 'kedge up' starts it")
    return path


def _node_directory(state: Path, node: str) -> Path:
    from kedge.cli.cluster.registry import node_directories

    found = {each.name: each for each in node_directories(state)}
    if node in found:
        return found[node]
    names = ", ".join(found)
    if not found:
        raise Failure(f"{state} has no nodes: 'kedge up --nodes 1' starts one")
    if node:
        raise Failure(f'there is no node "{node}" in {state}: the nodes are {names}')
    if len(found) > 1:
        raise Failure(f"the cluster has several nodes: name one, as in node/NAME ({names})")
    return next(iter(found.values()))


def show_log(path: Path, *, tail: int | None, follow: bool) -> None:
    """Print a log, or its last lines; then what is added to it until Ctrl-C."""
    out = sys.stdout.buffer
    with open(path, "rb") as file:
        if tail is not None and tail >= 0:
            out.writelines(last_lines(file.fileno(), tail))
        else:
            shutil.copyfileobj(file, out)
        out.flush()
        while follow:
            for piece in _added(file.fileno()):
                out.write(piece)
            out.flush()
            time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here


def last_lines(descriptor: int, count: int) -> list[bytes]:
    """Return the last lines of a file, and leave the descriptor at its end."""
    size = os.fstat(descriptor).st_size
    os.lseek(descriptor, max(0, size - _LONGEST), os.SEEK_SET)
    data = b"".join(_added(descriptor))
    return list(deque(data.splitlines(keepends=True), maxlen=count))


def _added(descriptor: int) -> Iterator[bytes]:
    """Yield what was added to a file since it was last read. A log that has become too long is cut
    by its writer: then reading begins anew."""
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_size < os.lseek(descriptor, 0, os.SEEK_CUR):
            os.lseek(descriptor, 0, os.SEEK_SET)
    while data := os.read(descriptor, _CHUNK):
        yield data


def keep_logs(state: Path, place: Path) -> bool:
    """Copy the logs of a cluster to a directory; returns whether there are any."""
    found = log_files(state)
    place.mkdir(mode=0o700, exist_ok=True)
    for each in found:
        shutil.copyfile(each, place / kept_name(state, each))
    return bool(found)


def kept_name(state: Path, log: Path) -> str:
    """Return the name of the copy of a log."""
    return str(log.relative_to(state)).replace("/", "-")
