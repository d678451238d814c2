"""The supervisor's process: the node agent starts one per node, in the background."""

import contextlib
import fcntl
import gc
import os
import resource
import signal
import sys
from typing import Final, NoReturn

from kedge.supervisor import level, network
from kedge.supervisor.kernel import descriptors, libc
from kedge.supervisor.launch import launch
from kedge.supervisor.launch.launcher import EntryPoint, start_launcher
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.sandbox import namespaces
from kedge.supervisor.supervisor import Supervisor, ignore_signals

ENTRY_POINTS: Final[dict[str, EntryPoint]] = {
    "container": launch.container,
    "command": launch.command,
    "plain": launch.plain,
    "pause": namespaces.pause,
}
LOCK: Final = "supervisor.lock"
LOG: Final = "supervisor.log"
_OOM_SCORE: Final = -999
"""The kernel kills the supervisor last when memory runs out: its end ends all containers."""


def main(directory: str) -> None:
    """Become a supervisor in the background; the started process exits when it listens."""
    descriptors.keep_only({0, 1, 2})
    os.makedirs(directory, 0o700, exist_ok=True)
    lock = os.open(f"{directory}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another supervisor has {directory}")
    ready, listening = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(listening)
        # The child writes a byte when it listens; if it fails, the reason is in its log.
        os._exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    _detach(directory)
    _supervise(directory, listening)


def _without_namespaces() -> dict[str, EntryPoint]:
    """Return the entry points with those that only such a machine needs, imported once for all
    children."""
    from kedge.supervisor.plain import prepared_root, shared_directories

    own: dict[str, EntryPoint] = {
        "refresh": prepared_root.refresh,
        "share": shared_directories.share,
    }
    return {**ENTRY_POINTS, **own}


def _detach(directory: str) -> None:
    """Detach from the session, the files and the limits of the starting process."""
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(f"{directory}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, descriptor in enumerate((null, log, log)):
        os.dup2(descriptor, number)
    libc.name_process("kedge-superv")
    with contextlib.suppress(OSError):
        # Without it, as on gVisor, another process reaps what containers leave behind.
        libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(_OOM_SCORE))
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _supervise(directory: str, listening: int) -> NoReturn:
    found, groups = level.probe()
    rootless = found.user_namespace
    with network.exclusive(directory) if rootless else contextlib.nullcontext():
        outer = -1
        if rootless:
            outer = level.enter(network.shared_namespaces(directory))
            found = level.with_own_ids(found)
        ignore_signals()
        launcher = start_launcher(ENTRY_POINTS if found.namespaces else _without_namespaces())
        loop = EventLoop()
        supervisor = Supervisor(directory, loop, launcher, found, groups, outer)
    loop.signal(signal.SIGTERM, lambda: supervisor.end_everything(loop.stop))
    os.write(listening, b"1")
    os.close(listening)
    # These objects live as long as the process: the collector, and forked children, skip them.
    gc.collect()
    gc.freeze()
    loop.run()
    # Without Python's cleanup, which could wait for streams.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
