"""User namespaces of pods: root in such a pod is an ordinary user of the machine.

The ids 0 to 65,535 of the pod are a range of the machine's ids that nothing else uses. A leaked
resource of the machine (a descriptor, a mount, a kernel file) then belongs to another user:
CVE-2019-5736, CVE-2021-25741, CVE-2024-21626 and CVE-2025-31133 all needed root on the
machine. The kubelet and runc do the same for `hostUsers: false`.

The namespace owns the pod's network, IPC and UTS namespaces and its containers' mount namespaces,
so that capabilities inside apply to these and to nothing of the machine.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs import idmapped

LENGTH: Final = 65_536
"""The traditional number of Unix ids, `nobody` included, as in upstream's kubelet."""
_PROBED: Final = 0x7000_0000
"""An arbitrary range for the attempt, which writes no file with these ids."""


def make(first: int) -> int:
    """Return a new user namespace whose ids are the machine's ids from `first` on.

    Writing a map of more than one id needs privileges over the machine's ids, which a process in
    a new namespace lacks. So a child enters the namespace, and this process writes the map.
    """
    entered, entering = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _wait_inside(entering)
    os.close(entering)
    try:
        if not os.read(entered, 1):
            raise OSError(1, "unshare: this machine allows no user namespaces")
        for name in ("uid_map", "gid_map"):
            _write(f"/proc/{pid}/{name}", f"0 {first} {LENGTH}")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(entered)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _wait_inside(entering: int) -> None:
    """Wait in a new user namespace until killed; ends with the parent."""
    try:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        libc.unshare(libc.NEW_USER)
        os.write(entering, b"1")
        while True:
            signal.pause()
    finally:
        os._exit(1)


def enter(namespace: int, *, own_mounts: bool) -> None:
    """Enter a pod's user namespace: drops all privileges on the machine, gains all in the
    namespace.

    With `own_mounts`, existing mounts are copied into a mount namespace that the user namespace
    owns. The kernel locks the copies together: root in the container can mount over them, but it
    can neither unmount a mask nor make a read-only mount writable.
    """
    # This process still has the supervisor's memory, so processes in the namespace must not read
    # it.
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    libc.setns(namespace, libc.NEW_USER)
    if own_mounts:
        libc.unshare(libc.NEW_MOUNT | libc.NEW_CGROUP)


def become_root() -> None:
    """Become root of the entered user namespace."""
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def obstacle(directory: str) -> str:
    """Return why a pod cannot have a user namespace with roots in a directory; empty if it can."""
    reason, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _write_obstacle(writer, lambda: _attempt(directory))
    os.close(writer)
    with open(reason) as file:
        text = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return text or (f"the attempt to make one ended with {status}" if status else "")


def _write_obstacle(writer: int, attempt: Callable[[], None]) -> None:
    try:
        attempt()
        os._exit(0)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(writer, (error.strerror or str(error)).encode())
    finally:
        os._exit(1)


def _attempt(directory: str) -> None:
    """Mount an overlay on an id-mapped directory."""
    namespace = make(_PROBED)
    libc.unshare(libc.NEW_MOUNT)
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    tree = idmapped.tree(directory, namespace, recursive=False)
    libc.mount("tmpfs", directory, "tmpfs", data="mode=755")
    for name in ("lower", "upper", "work", "root"):
        os.mkdir(f"{directory}/{name}")
    idmapped.attach(tree, f"{directory}/lower")
    # Files of Secrets and ConfigMaps are on tmpfs, which supports id mapping since Linux 6.3.
    os.close(idmapped.tree(directory, namespace, recursive=False))
    options = "lowerdir=lower,upperdir=upper,workdir=work"
    os.chdir(directory)
    libc.mount("overlay", "root", "overlay", data=options)
    enter(namespace, own_mounts=True)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
