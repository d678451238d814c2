"""Work on files of subordinate ids, in a process of its own.

Agents and commands of an ordinary user are outside of the user namespace of containers. There the
files of a container's other users are those of strangers. So this starts a small process that
enters a new user namespace with the same ids, does the work as root of it, and exits.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kedge.supervisor import subordinate_ids
from kedge.supervisor.files import group_walk, removal, tree_usage

_START: Final = (
    "import sys; sys.path[:0] = sys.argv[1:2]; "
    "from kedge.supervisor.files.mapped import main; main(sys.argv[2:])"
)
_PACKAGES: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
_SECONDS: Final = 600.0
_MOST_OUTPUT: Final = 1 << 16


class FileOwner(NamedTuple):
    """The owner and the mode that a file gets; -1 leaves an id unchanged."""

    path: str
    user: int
    group: int
    mode: int


def is_available() -> bool:
    """Return whether this process is of a user with subordinate ids, as far as files tell."""
    return bool(subordinate_ids.granted())


def remove_rest(path: str | os.PathLike[str], failure: str) -> str:
    """Remove a directory that this process could not remove; `failure` says why. Returns why
    something is left."""
    answer = _run("remove", os.path.abspath(path)) if is_available() else None
    return failure if answer is None else str(answer)


def own(files: Sequence[FileOwner]) -> bool:
    """Give files their owner, group and mode; returns False if nothing changed because this user
    has no subordinate ids. Raises OSError."""
    if not is_available():
        return False
    failure = _run("own", json.dumps(files))
    if failure:
        raise PermissionError(failure)
    return failure is not None


def give(path: str, group: int) -> bool:
    """Give everything in a directory to a group; returns False if nothing changed because this user
    has no subordinate ids. Raises OSError."""
    failure = _run("give", path, str(group)) if is_available() else None
    if failure:
        raise PermissionError(failure)
    return failure is not None


def usage(paths: Sequence[str]) -> int | None:
    """Return the disk usage of directories in bytes; None if only their owner can tell."""
    found = _run("usage", *paths) if is_available() else None
    return None if found is None else int(found)


def _run(*arguments: str) -> Any:
    """Return the answer of a process in a user namespace; None if there are no namespaces."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, _PACKAGES, *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            cwd="/",
        )
        return json.loads(done.stdout[:_MOST_OUTPUT])
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def main(arguments: Sequence[str]) -> None:
    """Do the work in a new user namespace, and print the answer as JSON."""
    if enter():
        work, *rest = arguments
        print(json.dumps(_WORK[work](*rest)))


def enter() -> bool:
    """Become root of a user namespace with this user's subordinate ids; returns whether it has
    them."""
    try:
        return not subordinate_ids.unshare(0)
    except OSError:
        return False


def _own(text: str) -> str:
    try:
        for entry in json.loads(text):
            _give(FileOwner(*entry))
    except OSError as error:
        return str(error)
    return ""


def _give(file: FileOwner) -> None:
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(file.path, flags)
    try:
        held = f"/proc/self/fd/{opened}"
        os.chown(held, file.user, file.group)
        # After the owner: the kernel clears set-id bits with a change of it.
        os.chmod(held, file.mode)
    finally:
        os.close(opened)


def _give_tree(path: str, group: str) -> str:
    try:
        group_walk.give(path, int(group), is_stopped=removal.never)
    except OSError as error:
        return str(error)
    return ""


def _usage(*paths: str) -> int:
    return tree_usage.disk_usage(paths).used


_WORK: Final[dict[str, Any]] = {
    "remove": removal.remove,
    "own": _own,
    "give": _give_tree,
    "usage": _usage,
}
