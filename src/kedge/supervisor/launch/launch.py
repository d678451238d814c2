"""From a fork of the launcher to a container's program; runs in the child only.

A container starts in this order, and each step relies on the ones before it:

1. Control group first, while the process can still see the machine's cgroup file system. All that
   follows counts against the container's limits, and the supervisor can kill the process by its
   group from here on.
2. Namespaces of the pod, then a cgroup namespace of its own: its root is the group of step 1.
3. The root file system (see `rootfs.py`), with the privileges of the machine's root, because
   mounts need them.
4. Standard streams; every other descriptor is closed, except the socket to the supervisor.
   Only then is a path resolved that the container chose (CVE-2024-21626).
5. The pod's user namespace: from here on the process has no rights on the machine.
6. Working directory and program are checked inside the root.
7. Privileges are dropped (see `privileges.py`).
8. A shared pid namespace last, because its other processes can see and trace this one
   (CVE-2016-9962). runc enters it first.
9. The seccomp filter, then execve.

The socket to the supervisor is close-on-exec: when it closes without an error message, execve
has succeeded. runc uses a FIFO and a pipe for the same purpose.
"""

import array
import contextlib
import fcntl
import json
import os
import socket
import stat
import struct
import sys
import termios
from collections.abc import Callable
from typing import Any, Final, NoReturn

from kedge.supervisor.kernel import descriptors, libc
from kedge.supervisor.launch import privileges, program
from kedge.supervisor.launch.options import LaunchOptions
from kedge.supervisor.launch.program import LaunchError
from kedge.supervisor.rootfs import rootfs
from kedge.supervisor.rootfs.options import Note, RootfsOptions
from kedge.supervisor.sandbox import user_namespace
from kedge.supervisor.spec import ContainerSpec

PTMX: Final = "/dev/pts/ptmx"
_CAP_SYS_CHROOT: Final = 1 << 18
_TIOCSPTLCK: Final = 0x4004_5431
_TIOCGPTPEER: Final = 0x5441
_MAX_TEXT: Final = 8192
"""Characters of a message to the supervisor: the name of a program can be as long as a pod."""


def container(
    spec: ContainerSpec, launch_fields: dict[str, Any], rootfs_fields: dict[str, Any]
) -> NoReturn:
    """Become a container's first process."""
    options, root_options = LaunchOptions.of(launch_fields), RootfsOptions(**rootfs_fields)

    def build() -> bool:
        # This process may be invisible in the container's own /proc, or have another pid there.
        own = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        options.terminal = rootfs.build(spec, root_options, _noting(options))
        if options.terminal >= 0:
            _send(options, {"terminal": True}, [options.terminal])
        privileges.raise_file_limit()
        return root_options.rootless and _has_ids(spec, own, _noting(options))

    try:
        _prepare(spec, options)
        _become(spec, options, build)
    except BaseException as error:
        _give_up(options, error)


def command(spec: ContainerSpec, launch_fields: dict[str, Any], rootless: bool) -> NoReturn:
    """Become a process in a running container."""
    options = LaunchOptions.of(launch_fields)

    def enter() -> bool:
        own = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        libc.setns(*options.target)
        privileges.raise_file_limit()
        if options.target_userns < 0:
            return rootless and _has_ids(spec, own, _noting(options))
        libc.setns(options.target_userns, libc.NEW_USER)
        return True

    try:
        _prepare(spec, options)
        _become(spec, options, enter)
    except BaseException as error:
        _give_up(options, error)


def plain(spec: ContainerSpec, launch_fields: dict[str, Any], home: str) -> NoReturn:
    """Become a process without namespaces, in a chroot if the supervisor is root."""
    # Before the chroot, in which there are no modules.
    from kedge.supervisor.plain import links, prepared_root, volumes
    from kedge.supervisor.plain.grants import advice

    def hold_volumes() -> None:
        """Open the volumes; the links of the container lead to their descriptors."""
        if options.links and options.status >= links.FIRST:
            moved = fcntl.fcntl(options.status, fcntl.F_DUPFD_CLOEXEC, links.LAST + 1)
            os.close(options.status)
            options.status = moved
        volumes.hold(spec["binds"], options.links)

    options = LaunchOptions.of(launch_fields)
    note = _noting(options)

    def chroot() -> None:
        if spec["lowers"] and os.geteuid() == 0:
            prepared_root.make(spec, f"{home}/{volumes.ROOT}", note)
            try:
                os.chroot(f"{home}/{volumes.ROOT}")
            except PermissionError as error:
                why = f"the root cannot be changed to the image; {advice('CAP_SYS_CHROOT')}"
                raise LaunchError(why) from error
            os.chdir("/")
            # With this capability a process can leave a chroot: it changes its root to a
            # subdirectory and goes up.
            spec["capabilities"] &= ~_CAP_SYS_CHROOT
        elif spec["lowers"]:
            raise LaunchError(
                "images other than host need root or namespaces, and there is neither"
            )

    try:
        _prepare(spec, options)
        chroot()
        _connect(options, spec)
        privileges.raise_file_limit()
        hold_volumes()
        program.change_directory(spec["directory"])
        try:
            privileges.drop_without_namespaces(spec, note)
        except PermissionError as error:
            why = f"cannot become user {spec['user']}; {advice('CAP_SETUID', 'CAP_SETGID')}"
            raise LaunchError(why) from error
        _run(spec, options, True, program.candidates(spec))
    except BaseException as error:
        _give_up(options, error)


def _has_ids(spec: ContainerSpec, own: int, note: Note) -> bool:
    """Give a process in a user namespace the ids of the container, if the namespace lacks them;
    returns whether it has them now."""
    has_ids = privileges.map_user(spec["user"], spec["group"], own)
    if not has_ids:
        spec["groups"] = privileges.mapped_groups(spec["groups"], own, note)
    return has_ids


def _become(spec: ContainerSpec, options: LaunchOptions, enter: Callable[[], bool]) -> NoReturn:
    """Enter the container, drop privileges and execute the program. `enter` returns whether the
    process has the container's ids already."""
    has_ids, in_directory, paths = _arrive(spec, options, enter)
    privileges.drop(spec, has_ids=has_ids)
    _enter_pid_namespace(options)
    _run(spec, options, in_directory, paths)


def _arrive(
    spec: ContainerSpec, options: LaunchOptions, enter: Callable[[], bool]
) -> tuple[bool, bool, list[str]]:
    """Enter the container with only its own streams open; returns what `enter` does, whether the
    working directory was entered, and candidate paths of the program."""
    if options.target_pidns >= 0:
        # setns changes the pid namespace of children only; see `_enter_pid_namespace`.
        libc.setns(options.target_pidns, libc.NEW_PID)
    for namespace in options.namespaces:
        libc.setns(namespace, 0)
    if options.new_namespaces:
        libc.unshare(options.new_namespaces)
    has_ids = enter()
    _connect(options, spec)
    if options.userns >= 0:
        # After this the process has no rights on the machine.
        user_namespace.enter(options.userns, own_mounts=bool(options.new_namespaces))
        os.close(options.userns)
    # From here on paths are resolved that the container chose. Only its own streams are open now,
    # so that no path through /proc/self/fd leads to anything of the machine.
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        entered = program.enter_directory(root, spec["directory"])
        return has_ids, entered, program.admitted(root, spec)
    finally:
        os.close(root)


def _enter_pid_namespace(options: LaunchOptions) -> None:
    """Continue as a process of the pid namespace to enter, if there is one.

    From then on its containers can see this process, and with CAP_SYS_PTRACE they can control
    it. So it is forked last, when it has only the container's privileges, and its memory holds
    no other pod's data. runc enters the namespace first and has this weakness. The new process is
    a child of the supervisor too; it waits until the supervisor has been sent its pid.
    """
    if options.target_pidns < 0:
        return
    known, announced = os.pipe2(os.O_CLOEXEC)
    if pid := libc.fork_sibling():
        _send(options, {"pid": pid})
        # The new process has its own copy of this socket, whose end tells of success.
        os.close(options.status)
        os.write(announced, b"1")
        os._exit(0)
    os.close(announced)
    if not os.read(known, 1):
        os._exit(1)
    os.close(known)
    # A terminal belongs to a session, which ends with the process that began it.
    os.setsid()


def _run(
    spec: ContainerSpec, options: LaunchOptions, in_directory: bool, paths: list[str]
) -> NoReturn:
    """Execute the program with the container's privileges."""
    if options.terminal >= 0:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if not in_directory:
        program.change_directory(spec["directory"])
    # Again: the kernel clears the parent-death signal when a process changes its user.
    privileges.die_with(options.status)
    privileges.set_late_filter(spec)
    _execute(spec, options, paths)


def _prepare(spec: ContainerSpec, options: LaunchOptions) -> None:
    privileges.die_with(options.status)
    if options.target_pidns < 0:
        os.setsid()
    os.umask(0o022)
    for path in options.cgroup_files:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, b"0")
        os.close(descriptor)
    privileges.set_oom_score(spec["oom_score_adj"], _noting(options))


def _connect(options: LaunchOptions, spec: ContainerSpec) -> None:
    """Set up the user's standard streams; closes everything else but the socket to the
    supervisor."""
    stdio = options.stdio
    if options.terminal >= 0:
        # The kernel opens the other side of the terminal by its descriptor: the container could
        # have replaced the path below /dev/pts.
        fcntl.ioctl(options.terminal, _TIOCSPTLCK, struct.pack("i", 0))
        peer = fcntl.ioctl(options.terminal, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        stdio = (peer, peer, peer)
    for number, descriptor in enumerate(stdio):
        # Otherwise a user other than root could not open /dev/stdout again.
        if not stat.S_ISCHR(os.fstat(descriptor).st_mode) or options.terminal >= 0:
            with contextlib.suppress(OSError):
                os.fchown(descriptor, options.first_id + spec["user"], -1)
        os.dup2(descriptor, number)
    descriptors.keep_only({0, 1, 2, options.status, options.userns})


def _execute(spec: ContainerSpec, options: LaunchOptions, paths: list[str]) -> NoReturn:
    path = program.find(spec["argv"][0], paths)
    privileges.reset_signals()
    _send(options, {"ready": True})
    variables = dict(each.split("=", 1) for each in spec["env"])
    try:
        os.execve(path, spec["argv"], variables)
    except OSError as error:
        raise program.failed_exec(path, error) from error


def _noting(options: LaunchOptions) -> Note:
    return lambda text: _send(options, {"note": text[:_MAX_TEXT]})


def _send(
    options: LaunchOptions, message: dict[str, object], sent: list[int] | None = None
) -> None:
    """Send a message, with descriptors, to the supervisor."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", sent or []))]
    status = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, options.status)
    try:
        status.sendmsg([json.dumps(message).encode()], rights if sent else [])
    finally:
        status.detach()


def _give_up(options: LaunchOptions, error: BaseException) -> NoReturn:
    if isinstance(error, LaunchError):
        text = str(error)
    elif isinstance(error, OSError):
        text = error.strerror or str(error)
    else:
        text = f"{type(error).__name__}: {error}"
        sys.excepthook(type(error), error, error.__traceback__)
    with contextlib.suppress(OSError):
        _send(options, {"error": text[:_MAX_TEXT]})
    os._exit(1)
