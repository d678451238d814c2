"""From a fork of the supervisor to a container's program; runs in the child only."""

import array
import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import struct
import sys
import termios
from collections.abc import Callable
from typing import Any, Final, NoReturn, Self

from kedge.supervisor.kernel import descriptors, libc
from kedge.supervisor.launch import privileges
from kedge.supervisor.rootfs import layer_copy, rootfs
from kedge.supervisor.sandbox import user_namespace
from kedge.supervisor.spec import ContainerSpec

PTMX: Final = "/dev/pts/ptmx"
_SYS_CHROOT: Final = 1 << 18
_TIOCSPTLCK: Final = 0x4004_5431
_TIOCGPTPEER: Final = 0x5441
_MOST_TEXT: Final = 8192
"""Characters of what is said to the supervisor: names of programs may be as long as a pod."""


class Refused(Exception):
    """The program cannot be run, for a reason that is the user's to read."""


class Start:
    """Arguments for a child besides its plan: numbers and strings only, since they go to another
    process."""

    def __init__(self, status: int, stdio: tuple[int, int, int]) -> None:
        self.status = status
        """A socket, for progress and errors."""
        self.stdio = stdio
        """Not used with a terminal."""
        self.terminal = -1
        """The controlling side of a terminal that is there already."""
        self.doors: list[str] = []
        """Files to write 0 to in order to be in the control group."""
        self.namespaces: list[int] = []
        """To be entered."""
        self.own_namespaces = 0
        """To be made."""
        self.entered = (-1, 0)
        """A process, and which of its namespaces are to be entered."""
        self.entered_pids = -1
        """A pid namespace to enter last."""
        self.entered_users = -1
        """A user namespace to enter."""
        self.users = -1
        """The pod's user namespace, entered when the setup outside is done; -1 for the machine's
        own."""
        self.first_id = 0
        """The machine's id of that namespace's id 0."""

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """The same in another process."""
        start = cls(fields["status"], fields["stdio"])
        vars(start).update(fields)
        return start

    def descriptors(self) -> set[int]:
        """The descriptors that a child needs. They include the supervisor's standard streams, so
        that no other descriptor gets their numbers before `_connect` replaces them."""
        entered = {self.entered[0], self.entered_pids, self.entered_users, self.users}
        return {0, 1, 2, self.status, *self.stdio, self.terminal, *self.namespaces, *entered}


def container(
    plan: ContainerSpec, start_fields: dict[str, Any], given_fields: dict[str, Any]
) -> NoReturn:
    """Become a container's first process."""
    start, given = Start.of(start_fields), rootfs.Given(**given_fields)

    def build() -> None:
        # This process may be invisible in the container's own /proc, or have another pid there.
        own = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        start.terminal = rootfs.build(plan, given, _noting(start))
        if start.terminal >= 0:
            _say(start, {"terminal": True}, [start.terminal])
        if given.mapped:
            privileges.map_user(plan["user"], plan["group"], own)
        privileges.limits()

    try:
        _prepare(plan, start)
        reached, programs = _arrive(plan, start, build)
        privileges.drop(plan, mapped=given.mapped)
        _show(start)
        _run(plan, start, reached, programs)
    except BaseException as error:
        _give_up(start, error)


def command(plan: ContainerSpec, start_fields: dict[str, Any], mapped: bool) -> NoReturn:
    """Become a process in a container that runs."""
    start = Start.of(start_fields)

    def enter() -> None:
        libc.setns(*start.entered)
        if start.entered_users >= 0:
            libc.setns(start.entered_users, libc.NEW_USER)
        privileges.limits()

    try:
        _prepare(plan, start)
        reached, programs = _arrive(plan, start, enter)
        privileges.drop(plan, mapped=mapped)
        _show(start)
        _run(plan, start, reached, programs)
    except BaseException as error:
        _give_up(start, error)


def plain(plan: ContainerSpec, start_fields: dict[str, Any], home: str) -> NoReturn:
    """Become a process of its own group, in a root of its own if that is possible."""
    start = Start.of(start_fields)
    note = _noting(start)

    def chroot() -> None:
        if plan["lowers"] and os.geteuid() == 0:
            if not os.path.isdir(f"{home}/copy"):
                layer_copy.merge(plan["lowers"], f"{home}/copy")
                rootfs.make_nodes(f"{home}/copy/dev")
            os.chroot(f"{home}/copy")
            os.chdir("/")
            # With it a process can leave a chroot: it changes its root to a subdirectory and
            # goes up.
            plan["capabilities"] &= ~_SYS_CHROOT
        elif plan["lowers"]:
            raise Refused("images other than host need root or namespaces, and there is neither")
        for bind in plan["binds"]:
            note(f'"{bind["target"]}" is not mounted: this machine allows no mounts')

    try:
        _prepare(plan, start)
        chroot()
        _connect(start, plan)
        _go_to(plan["directory"])
        privileges.become_plainly(plan, note)
        _run(plan, start, True, _candidates(plan))
    except BaseException as error:
        _give_up(start, error)


def _arrive(
    plan: ContainerSpec, start: Start, arrange: Callable[[], None]
) -> tuple[bool, list[str]]:
    """Enter the container with only its own streams open; returns whether the working directory
    was reached, and candidate paths of the program."""
    if start.entered_pids >= 0:
        libc.setns(start.entered_pids, libc.NEW_PID)
    for namespace in start.namespaces:
        libc.setns(namespace, 0)
    if start.own_namespaces:
        libc.unshare(start.own_namespaces)
    arrange()
    _connect(start, plan)
    if start.users >= 0:
        # After this the process has no rights on the machine.
        user_namespace.enter(start.users, own_mounts=bool(start.own_namespaces))
        os.close(start.users)
    # From here on paths are resolved that the container chose. Only its own streams are open now,
    # so that no path through /proc/self/fd leads to anything of the machine.
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _directory(root, plan["directory"]), _programs(root, plan)
    finally:
        os.close(root)


def _show(start: Start) -> None:
    """Continue as a process of the pid namespace to enter, if there is one.

    From then on its containers can see this process, and with CAP_SYS_PTRACE they can control
    it. So it is forked last, when it has only the container's privileges, and its memory holds
    no other pod's data. runc enters the namespace first and has this weakness. The new
    process is a child of the supervisor too; it waits until that has been sent its pid.
    """
    if start.entered_pids < 0:
        return
    known, announced = os.pipe2(os.O_CLOEXEC)
    if pid := libc.fork_sibling():
        _say(start, {"pid": pid})
        # execve closes this descriptor, which tells the supervisor of success.
        os.close(start.status)
        os.write(announced, b"1")
        os._exit(0)
    os.close(announced)
    if not os.read(known, 1):
        os._exit(1)
    os.close(known)
    # A terminal belongs to a session, which ends with the process that began it.
    os.setsid()


def _run(plan: ContainerSpec, start: Start, reached: bool, programs: list[str]) -> NoReturn:
    """Execute the program with the container's privileges."""
    if start.terminal >= 0:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if not reached:
        _go_to(plan["directory"])
    privileges.die_with(start.status)
    privileges.filter_late(plan)
    _execute(plan, start, programs)


def _prepare(plan: ContainerSpec, start: Start) -> None:
    privileges.die_with(start.status)
    if start.entered_pids < 0:
        os.setsid()
    os.umask(0o022)
    for door in start.doors:
        descriptor = os.open(door, os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, b"0")
        os.close(descriptor)
    privileges.score(plan["oom_score_adj"], _noting(start))


def _directory(root: int, path: str) -> bool:
    """Go to a directory inside the root; one that only the user may enter is entered later.

    The container may have replaced the directory by a link since it was made, so it is opened in
    the root, without magic links: chdir would follow /proc/self/fd/N (CVE-2024-21626).
    """
    try:
        found = libc.open_in(root, path, os.O_PATH | os.O_DIRECTORY)
        os.fchdir(found)
        os.close(found)
    except PermissionError:
        return False
    except OSError as error:
        raise _no_directory(path, error) from error
    _check_inside(path)
    return True


def _go_to(path: str) -> None:
    """Go to a directory with the privileges of the user, who can reach only the container."""
    try:
        os.chdir(path)
    except OSError as error:
        raise _no_directory(path, error) from error
    _check_inside(path)


def _check_inside(path: str) -> None:
    """Refuse a working directory that is outside the root, as runc does after CVE-2024-21626: the
    kernel names no path for it."""
    try:
        os.getcwd()
    except OSError as error:
        raise Refused(f'working directory "{path}" is outside of the container') from error


def _no_directory(path: str, error: OSError) -> Refused:
    return Refused(f'working directory "{path}": {_reason(error)}')


def _connect(start: Start, plan: ContainerSpec) -> None:
    """Set up the user's standard streams; closes everything else but the socket to the
    supervisor."""
    stdio = start.stdio
    if start.terminal >= 0:
        fcntl.ioctl(start.terminal, _TIOCSPTLCK, struct.pack("i", 0))
        peer = fcntl.ioctl(start.terminal, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        stdio = (peer, peer, peer)
    for number, descriptor in enumerate(stdio):
        # A user of its own could not open /dev/stdout again if it belonged to root.
        if not stat.S_ISCHR(os.fstat(descriptor).st_mode) or start.terminal >= 0:
            with contextlib.suppress(OSError):
                os.fchown(descriptor, start.first_id + plan["user"], -1)
        os.dup2(descriptor, number)
    descriptors.keep_only({0, 1, 2, start.status, start.users})


def _execute(plan: ContainerSpec, start: Start, programs: list[str]) -> NoReturn:
    program = _find(plan["argv"][0], programs)
    privileges.quiet_signals()
    _say(start, {"ready": True})
    variables = dict(each.split("=", 1) for each in plan["env"])
    try:
        os.execve(program, plan["argv"], variables)
    except OSError as error:
        raise Refused(f"exec {program}: {_reason(error)}") from error


def _programs(root: int, plan: ContainerSpec) -> list[str]:
    """Return the candidate paths of the program, without those that lead through magic links.

    An image whose program is /proc/self/exe, or a link to it, would run the supervisor's own
    interpreter in the container and could write to it (CVE-2019-5736). The check comes before
    the seccomp filter, which may not know openat2. A container that replaces the program between
    this check and execve gains nothing: by then no descriptor of the machine is
    open and the interpreter is a sealed copy.
    """
    name, admitted = plan["argv"][0], []
    for candidate in _candidates(plan):
        try:
            path = os.path.join(plan["directory"], candidate)
            os.close(libc.open_in(root, path, os.O_PATH))
        except PermissionError:
            # Paths that only the user can reach are searched as the user.
            pass
        except OSError as error:
            if "/" in name:
                raise _no_program(name, error) from error
            continue
        admitted.append(candidate)
    return admitted


def _no_program(path: str, error: OSError) -> Refused:
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return Refused(f'exec: "{path}": it is a magic link of /proc, or links lead in circles')
    return Refused(f'exec: "{path}": stat {path}: {_reason(error)}')


def _candidates(plan: ContainerSpec) -> list[str]:
    """Return the possible paths of the program, in a shell's order."""
    name = plan["argv"][0]
    if "/" in name:
        return [name]
    path = next((each[5:] for each in plan["env"] if each.startswith("PATH=")), "")
    return [f"{directory or '.'}/{name}" for directory in path.split(":")]


def _find(name: str, programs: list[str]) -> str:
    """The program as a shell would find it, and the words that Go programs use if there is none."""
    if "/" in name:
        _check(name)
        return name
    for candidate in programs:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise Refused(f'exec: "{name}": executable file not found in $PATH')


def _check(path: str) -> None:
    try:
        directory = os.path.isdir(path)
        os.stat(path)
    except OSError as error:
        raise _no_program(path, error) from error
    if directory:
        raise Refused(f'exec: "{path}": is a directory')
    if not os.access(path, os.X_OK):
        raise Refused(f'exec: "{path}": permission denied')


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()


def _noting(start: Start) -> rootfs.Note:
    return lambda text: _say(start, {"note": text[:_MOST_TEXT]})


def _say(start: Start, message: dict[str, object], sent: list[int] | None = None) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", sent or []))]
    status = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, start.status)
    try:
        status.sendmsg([json.dumps(message).encode()], rights if sent else [])
    finally:
        status.detach()


def _give_up(start: Start, error: BaseException) -> NoReturn:
    if isinstance(error, Refused):
        text = str(error)
    elif isinstance(error, OSError):
        text = error.strerror or str(error)
    else:
        text = f"{type(error).__name__}: {error}"
        sys.excepthook(type(error), error, error.__traceback__)
    with contextlib.suppress(OSError):
        _say(start, {"error": text[:_MOST_TEXT]})
    os._exit(1)
