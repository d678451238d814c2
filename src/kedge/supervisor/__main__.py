"""The supervisor's process: started by the node agent, in the background, once per node."""

import contextlib
import fcntl
import gc
import os
import resource
import signal
import sys
from typing import Final, NoReturn

from kedge.supervisor import level
from kedge.supervisor.kernel import descriptors, libc
from kedge.supervisor.launch import launch
from kedge.supervisor.launch.launcher import Errand, begin
from kedge.supervisor.loop import Loop
from kedge.supervisor.sandbox import namespaces
from kedge.supervisor.supervisor import Supervisor, ignore_signals

ERRANDS: Final[dict[str, Errand]] = {
    "container": launch.container,
    "command": launch.command,
    "plain": launch.plain,
    "pause": namespaces.pause,
}
LOCK: Final = "supervisor.lock"
LOG: Final = "supervisor.log"
_SPARED: Final = -999


def main(directory: str) -> None:
    """Become a supervisor in the background; returns to the caller's shell when it listens."""
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
        # Nothing is written when it fails, and what went wrong is in the log.
        os._exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    _leave(directory)
    _supervise(directory, listening)


def _leave(directory: str) -> None:
    """Have nothing in common any more with the process that started this one."""
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(f"{directory}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, descriptor in enumerate((null, log, log)):
        os.dup2(descriptor, number)
    libc.name_process("kedge-superv")
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(_SPARED))
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _supervise(directory: str, listening: int) -> NoReturn:
    found, mapped = level.probe()
    outer = level.enter() if mapped else -1
    ignore_signals()
    launcher = begin(ERRANDS)
    loop = Loop()
    supervisor = Supervisor(directory, loop, launcher, found, outer)
    loop.signal(signal.SIGTERM, lambda: supervisor.end_everything(loop.stop))
    os.write(listening, b"1")
    os.close(listening)
    # What is there now is there for good: children need not look at it.
    gc.collect()
    gc.freeze()
    loop.run()
    # Children of this process must not run what Python does at its end.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
