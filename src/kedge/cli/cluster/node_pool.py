"""The record of local nodes that may be added, and the pool that starts and stops them."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kedge.cli.cluster import process
from kedge.machinery import atomic
from kedge.restarter.program import Pipes, Program, make_room, spawn

PART: Final = "node-autoscaler"
"""The name of the process, of its command, its pid file and its log."""
_RECORD: Final = "node-pool.json"
_LARGEST: Final = 4 << 20
_JOIN_FLAG: Final = "--join-fd"
_AGENT: Final = "node"


class PoolNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that may be added, and the command line of its agent."""

    name: str
    arguments: tuple[str, ...]
    log: str


class PoolRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file `node-pool.json`."""

    least: int
    """How many nodes there are besides."""
    calm_seconds: float
    """For how long a node is not needed before it is removed."""
    nodes: tuple[PoolNode, ...]


def write(directory: Path, record: PoolRecord) -> None:
    atomic.write(directory / _RECORD, msgspec.json.encode(record))


def read(directory: Path) -> PoolRecord | None:
    """Return the record; None if the number of nodes is fixed."""
    try:
        descriptor = os.open(directory / _RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        # Programs are started with the arguments in this file, so another user must not have
        # written it.
        if os.fstat(descriptor).st_uid != os.geteuid():
            return None
        try:
            return msgspec.json.decode(file.read(_LARGEST), type=PoolRecord)
        except (OSError, msgspec.MsgspecError):
            return None


def forget(directory: Path) -> None:
    (directory / _RECORD).unlink(missing_ok=True)


class LocalNodePool:
    """Starts agents as children of this process. They outlive it, and the next one finds them by
    their pid files."""

    def __init__(self, directory: Path, record: PoolRecord, url: str) -> None:
        """`url` is the address of the server, which agents wait for."""
        self._directory = directory
        self._nodes = {each.name: each for each in record.nodes}
        self._url = url
        self._children: dict[str, tuple[int, int]] = {}
        """The pid of each agent that was started here, and the pipe on which it says that it is
        ready: an agent ends if nothing reads there when it starts."""
        self.least = record.least

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._nodes)

    def running(self) -> set[str]:
        """Return the nodes whose agents run, or have just been started."""
        self._reap()
        found = {name for name in self._nodes if process.running(self._place(name), _AGENT)}
        return found | self._children.keys()

    async def start(self, name: str) -> None:
        """Start an agent; raises OSError."""
        node, place = self._nodes[name], self._place(name)
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        make_room(node.log)
        ready, theirs = os.pipe()
        heard, ours = os.pipe()
        os.write(ours, f"{self._url}\n".encode())
        os.close(ours)
        program = Program(f'node "{name}"', node.arguments, node.log, _JOIN_FLAG)
        try:
            pid = spawn(program, Pipes(theirs, heard), os.environ)
        except OSError:
            os.close(ready)
            raise
        self._children[name] = pid, ready

    async def stop(self, name: str) -> None:
        """Stop an agent and its containers; raises OSError."""
        import asyncio

        from kedge.cli.cluster.down import end_node
        from kedge.cli.failure import Failure

        try:
            # Signals that limit the time belong to the main thread, where other commands use this.
            await asyncio.to_thread(end_node, self._place(name))
        except Failure as failure:
            raise OSError(str(failure)) from failure
        self._reap()

    def _reap(self) -> None:
        """Forget the agents that have ended."""
        for name, (pid, ready) in list(self._children.items()):
            with contextlib.suppress(ChildProcessError):
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            os.close(ready)
            del self._children[name]

    def _place(self, name: str) -> Path:
        return self._directory / "nodes" / name
