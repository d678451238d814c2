"""Namespaces of pods. Only descriptors of the supervisor hold them open, so that the kernel removes
them when the supervisor ends."""

import contextlib
import json
import os
import signal
import socket
from typing import Final, NoReturn

from kedge.supervisor import wire
from kedge.supervisor.kernel import descriptors, libc
from kedge.supervisor.launch import privileges
from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.level import raise_loopback
from kedge.supervisor.sandbox import user_namespace
from kedge.supervisor.spec import SandboxSpec

_KINDS: Final = {
    "net": libc.NEW_NET,
    "ipc": libc.NEW_IPC,
    "uts": libc.NEW_UTS,
    "mnt": libc.NEW_MOUNT,
    "cgroup": libc.NEW_CGROUP,
}
_APART: Final = ("user", "mnt")
"""Kinds that are created separately: user before, mnt after the others."""
_AF_NETLINK: Final = 16
_NETLINK_ROUTE: Final = 0
_PAUSE_USER: Final = 65_535
"""User of the first process of a shared pid namespace, as in upstream's pause image."""
_SHM: Final = "mode=1777,size=65536k,uid=0,gid=0"
_OF_IPC: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


class PodNamespaces:
    """The namespaces of one pod; a missing kind means the machine's namespace."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.pause = 0
        """The first process of a shared pid namespace."""
        self.first_id = 0
        """The machine's id of its user namespace's id 0."""

    def joined(self) -> list[int]:
        """Return the namespaces that every container of the pod enters."""
        return [self.held[kind] for kind in ("ipc", "uts", "net") if kind in self.held]

    @property
    def shm(self) -> int:
        return self.held.get("mnt", -1)

    @property
    def userns(self) -> int:
        """Its user namespace; -1 for the machine's."""
        return self.held.get("user", -1)

    def network(self, supervisor: int) -> str:
        """A path of the network namespace, by the supervisor's pid; empty for the machine's."""
        return f"/proc/{supervisor}/fd/{self.held['net']}" if "net" in self.held else ""

    def close(self) -> None:
        for descriptor in self.held.values():
            os.close(descriptor)
        self.held.clear()
        if self.pause:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pause, signal.SIGKILL)
            self.pause = 0


def dial(pod: PodNamespaces, family: int, status: socket.socket) -> NoReturn:
    """Send a stream socket of the pod's network namespace; runs in a child."""
    try:
        descriptors.keep_only({0, 1, 2, status.fileno(), pod.held["net"]})
        libc.setns(pod.held["net"], libc.NEW_NET)
        wire.post(status, b"{}", [socket.socket(family, socket.SOCK_STREAM).detach()])
    except OSError as error:
        wire.post(status, json.dumps({"error": str(error)}).encode(), [])
    finally:
        os._exit(0)


def make(shared: SandboxSpec, directory: str, status: socket.socket, procs_file: str) -> NoReturn:
    """Make namespaces for a pod, its loopback device up, its sysctls set, and send them to the
    supervisor, with a netlink socket in the pod's network at the end; runs in a child.

    `procs_file` is the cgroup.procs file of any control group. The first process that writes to
    one waits ten milliseconds or more for the kernel (cgroup_threadgroup_rwsem), and processes
    that write soon after do not wait. So this child writes, before the container has to.
    """
    try:
        descriptors.keep_only({0, 1, 2, status.fileno()})
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        _check_sysctls(shared)
        kinds = kinds_of(shared)
        if first := first_id_of(shared):
            # The user namespace of the process that creates a namespace owns it.
            libc.setns(user_namespace.make(first), libc.NEW_USER)
        libc.unshare(sum(_KINDS[kind] for kind in kinds if kind not in _APART))
        _settle(shared, kinds)
        sysctls = os.open("/proc/sys", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        held = [_open(kind) for kind in kinds if kind != "mnt"]
        procs = os.open(procs_file, os.O_WRONLY | os.O_CLOEXEC) if procs_file else -1
        if "mnt" in kinds:
            held.append(_shared_memory(directory))
        if "net" in kinds:
            held.append(_netlink())
        if first:
            # Kernel settings belong to root of the namespace, who cannot reach the directory
            # above.
            user_namespace.become_root()
        for name, value in shared["sysctls"].items():
            _set(name, value, sysctls)
        wire.post(status, b"{}", held)
        _warm_up_cgroups(procs)
    except OSError as error:
        text = error.strerror or str(error)
        wire.post(status, json.dumps({"error": text}).encode(), [])
    finally:
        os._exit(0)


def _warm_up_cgroups(procs: int) -> None:
    if procs >= 0:
        with contextlib.suppress(OSError):
            os.write(procs, b"0")


def kinds_of(shared: SandboxSpec) -> list[str]:
    """Return the kinds of namespaces that a pod has of its own, in the order of sending."""
    kinds = ["user"] if first_id_of(shared) else []
    kinds += [] if shared["host_network"] else ["net", "uts"]
    return kinds + ([] if shared["host_ipc"] else ["ipc", "mnt"])


def first_id_of(shared: SandboxSpec) -> int:
    """Return the machine's id of a pod's id 0; records of earlier releases lack it."""
    return shared.get("first_id", 0)


def different(pid: int) -> int:
    """Return the flags of the namespaces of a process that differ from ours. setns to the current
    namespace is not always allowed."""
    return sum(
        flag
        for kind, flag in _KINDS.items()
        if os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
    )


def share_pids(pod: PodNamespaces, launcher: Launcher, directory: str) -> int:
    """Give the pod a pid namespace with a pause process, which only reaps; returns its pid."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            done = theirs.fileno()
            sent = [*pod.joined(), pod.userns, done]
            arguments = (pod.joined(), pod.userns, directory, done)
            pod.pause = launcher.fork("pause", arguments, sent, is_new_pid_namespace=True)
        # Containers see this process, so none may start before it has dropped its privileges.
        try:
            _, received = wire.take(ours)
        except wire.PeerClosed:
            text = "the first process of the pod's shared pid namespace does not start"
            raise OSError(1, text) from None
    pod.held["pid"], pod.held["proc"] = received
    return pod.pause


def _open(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _settle(shared: SandboxSpec, kinds: list[str]) -> None:
    if "uts" in kinds and shared["hostname"]:
        socket.sethostname(shared["hostname"])
    if "net" in kinds:
        raise_loopback()


def _check_sysctls(shared: SandboxSpec) -> None:
    for name in shared["sysctls"]:
        if {"", ".", ".."} & set(_path(name).split("/")):
            # The written path must match the checked prefix: not kernel.core_pattern.
            raise OSError(1, f'sysctl "{name}" is not a name')
        if name.startswith("net."):
            if shared["host_network"]:
                raise OSError(1, f'sysctl "{name}" is not allowed with host network enabled')
        elif not name.startswith(_OF_IPC):
            raise OSError(1, f'sysctl "{name}" is not in a separate kernel namespace')
        elif shared["host_ipc"]:
            raise OSError(1, f'sysctl "{name}" is not allowed with host ipc enabled')


def _set(name: str, value: str, sysctls: int) -> None:
    try:
        descriptor = os.open(_path(name), os.O_WRONLY | os.O_CLOEXEC, dir_fd=sysctls)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OSError(error.errno, f'sysctl "{name}": {error.strerror}') from error


def _path(name: str) -> str:
    """Return a sysctl's path below /proc/sys. Dots separate its parts; a slash stands for a dot
    inside a part."""
    return name.replace("/", "\0").replace(".", "/").replace("\0", ".")


def _netlink() -> int:
    return socket.socket(_AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE).detach()


def _shared_memory(directory: str) -> int:
    """Return a mount namespace that contains only the pod's /dev/shm."""
    own = os.open("/proc/self/ns", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _leave_for("tmpfs", directory, _SHM)
    return os.open("mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=own)


def _leave_for(kind: str, directory: str, options: str, flags: int = 0) -> None:
    """Enter a new mount namespace that contains only a new file system of that kind."""
    libc.unshare(libc.NEW_MOUNT)
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    safe = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
    libc.mount(kind, directory, kind, safe | flags, options)
    os.chdir(directory)
    libc.pivot_root(".", ".")
    libc.unmount(".")


def _own_proc(directory: str, own: int) -> int:
    """Return a mount namespace that contains only the /proc of this process's pid namespace."""
    _leave_for("proc", directory, "")
    return os.open("mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=own)


def pause(joined: list[int], users: int, directory: str, done: int) -> NoReturn:
    """Be the first process of a pod's shared pid namespace; sends the namespace, and a mount
    namespace that contains only its /proc, to the supervisor.

    Containers of the pod see it, and those with CAP_SYS_PTRACE can control it, so it has no
    rights: it has an empty root, the namespaces of the pod, no capabilities, and
    a user of its own.
    """
    try:
        os.setsid()
        libc.name_process("pause")
        for namespace in joined:
            libc.setns(namespace, 0)
        own = os.open("/proc/self/ns", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        home, pids, proc = _open("mnt"), _open("pid"), _own_proc(directory, own)
        libc.setns(home, libc.NEW_MOUNT)
        _leave_for("tmpfs", directory, "size=0,mode=555", libc.MS_RDONLY)
        if users >= 0:
            user_namespace.enter(users, own_mounts=False)
        descriptors.keep_only({done, pids, proc})
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGCHLD])
        privileges.give_up(_PAUSE_USER)
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, done) as status:
            wire.post(status, b"{}", [pids, proc])
        descriptors.keep_only(())
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            signal.sigwait([signal.SIGCHLD])
    finally:
        os._exit(1)
