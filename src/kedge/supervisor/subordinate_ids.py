"""Subordinate ids: users and groups of the machine that root has granted to an ordinary user.

/etc/subuid and /etc/subgid name the granted ranges. `newuidmap` and `newgidmap`, of the package
uidmap, write them into the map of a user namespace, which takes root. Both are set-user-ID
programs, so they come from directories of root, and run without variables and with a deadline.
"""

import os
import pwd
import re
import select
import signal
import stat
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from kedge.supervisor.kernel import cgroups, libc

PROGRAMS: Final = {"gid": "newgidmap", "uid": "newuidmap"}
"""By kind of id. Groups first: without them, nothing is mapped."""
_DIRECTORIES: Final = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/run/wrappers/bin")
_FILES: Final = {"gid": "/etc/subgid", "uid": "/etc/subuid"}
_LINE: Final = re.compile(r"([^:\s]{1,256}):([0-9]{1,10}):([0-9]{1,10})")
_MOST_RANGES: Final = 16
_MOST_BYTES: Final = 1 << 20
_MOST_OUTPUT: Final = 1024
_LAST_ID: Final = 0xFFFF_FFFE
"""The next one means "unchanged" in system calls."""
_SECONDS: Final = 5.0


class SubordinateRange(NamedTuple):
    """Consecutive ids of the machine."""

    first: int
    length: int


class IdGrant(NamedTuple):
    """The ranges and the program for one kind of id."""

    program: str
    own: int
    ranges: Sequence[SubordinateRange]

    def arguments(self, pid: int) -> list[str]:
        """Return the command that maps the user to root, and the ranges to the ids from 1 on."""
        command, inner = [self.program, str(pid), "0", str(self.own), "1"], 1
        for first, length in self.ranges:
            command += [str(inner), str(first), str(length)]
            inner += length
        return command


def ranges(text: str, names: Container[str]) -> list[SubordinateRange]:
    """Return the ranges that a file grants to a user, who has a name and a number. Invalid lines
    grant nothing."""
    found: list[SubordinateRange] = []
    for line in text.splitlines():
        fields = _LINE.fullmatch(line.strip())
        if fields is None or fields[1] not in names:
            continue
        first, length = int(fields[2]), int(fields[3])
        if first > 0 and length > 0 and first + length - 1 <= _LAST_ID:
            found.append(SubordinateRange(first, length))
    return found[:_MOST_RANGES]


def granted() -> list[IdGrant]:
    """Return what this user may map, groups first; empty without a grant or without the programs,
    and for root, who needs none."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        return []
    names = {str(user)}
    found = []
    for kind, own in (("gid", group), ("uid", user)):
        text, program = _read(_FILES[kind]), _program(PROGRAMS[kind])
        if not text or not program:
            return []
        if len(names) == 1:
            names |= _name(user)
        mine = ranges(text, names)
        if not mine:
            return []
        found.append(IdGrant(program, own, mine))
    return found


def map_process(pid: int, grants: Sequence[IdGrant]) -> str:
    """Map the ids of another process, the first of a new user namespace; return the problem, or an
    empty text."""
    for grant in grants:
        if problem := _run(grant.arguments(pid)):
            return f"{grant.program}: {problem}"
    return ""


def unshare(flags: int) -> str:
    """Continue as root of a new user namespace, with the subordinate ids of this user; return why
    they are missing, or an empty text. Without them the namespace has one user and one group."""
    user, group = os.geteuid(), os.getegid()
    problem = _unshare_granted(flags)
    if problem is None:
        libc.unshare(libc.NEW_USER | flags)
        problem = "no subordinate ids are granted"
    if not _is_mapped("gid"):
        cgroups.write("/proc/self/setgroups", "deny")
        cgroups.write("/proc/self/gid_map", f"0 {group} 1")
    if not _is_mapped("uid"):
        cgroups.write("/proc/self/uid_map", f"0 {user} 1")
    return problem


def count(map_text: str) -> int:
    """Return the number of ids in a map of a user namespace (user_namespaces(7))."""
    return sum(int(line.split()[2]) for line in map_text.splitlines())


def has(map_text: str, number: int) -> bool:
    """Return whether a namespace with this map has an id."""
    extents = (tuple(map(int, line.split())) for line in map_text.splitlines())
    return any(inner <= number < inner + length for inner, _, length in extents)


def are_mapped() -> bool:
    """Return whether the user namespace of this process has more than one user and group."""
    return all(count(_read(f"/proc/self/{kind}_map")) > 1 for kind in PROGRAMS)


def are_present(user: int, group: int) -> bool:
    """Return whether the user namespace of this process has a user and a group."""
    return has(_read("/proc/self/uid_map"), user) and has(_read("/proc/self/gid_map"), group)


def _unshare_granted(flags: int) -> str | None:
    """Enter a namespace that a child of this process maps, from outside; return the problem, or
    None if nothing is granted."""
    grants = granted()
    if not grants:
        return None
    entered, entering = os.pipe2(os.O_CLOEXEC)
    outcome, telling = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(entering)
        _map_parent(entered, telling, grants)
    os.close(entered)
    os.close(telling)
    try:
        libc.unshare(libc.NEW_USER | flags)
        os.write(entering, b"1")
        return _whole(outcome)
    finally:
        os.close(entering)
        os.close(outcome)
        os.waitpid(pid, 0)


def _map_parent(entered: int, telling: int, grants: Sequence[IdGrant]) -> None:
    """Map the ids of the parent once it is in its namespace; runs in a child, which exits."""
    try:
        parent = os.getppid()
        if os.read(entered, 1):
            os.write(telling, map_process(parent, grants).encode())
    except OSError as error:
        os.write(telling, str(error).encode())
    finally:
        os._exit(0)


def _run(command: list[str]) -> str:
    """Run a program without variables; return its words if it fails or takes too long."""
    output, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open("/dev/null", os.O_RDWR)
            for number, descriptor in enumerate((null, null, writer)):
                os.dup2(descriptor, number)
            os.chdir("/")
            os.execve(command[0], command, {})
        finally:
            os._exit(127)
    os.close(writer)
    os.set_blocking(output, False)
    try:
        status = _wait(pid)
        said = _read_descriptor(output, _MOST_OUTPUT).strip()
    finally:
        os.close(output)
    if status == 0:
        return ""
    return said.decode(errors="replace") or f"it ended with {status}"


def _wait(pid: int) -> int:
    """Return the exit code of a child, which is killed after the deadline."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(_SECONDS * 1000):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _whole(reader: int) -> str:
    pieces = []
    while piece := os.read(reader, _MOST_OUTPUT):
        pieces.append(piece)
    return b"".join(pieces).decode(errors="replace")


def _is_mapped(kind: str) -> bool:
    return bool(_read(f"/proc/self/{kind}_map").strip())


def _program(name: str) -> str:
    """Return the path of a program in a directory of root, which only root can change; empty if
    there is none."""
    for directory in _DIRECTORIES:
        path = f"{directory}/{name}"
        try:
            status = os.stat(path)
        except OSError:
            continue
        is_of_root = status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISREG(status.st_mode) and is_of_root:
            return path
    return ""


def _name(user: int) -> set[str]:
    try:
        return {pwd.getpwuid(user).pw_name}
    except KeyError:
        return set()


def _read(path: str) -> str:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return _read_descriptor(opened, _MOST_BYTES).decode(errors="replace")
    finally:
        os.close(opened)


def _read_descriptor(opened: int, most: int) -> bytes:
    try:
        return os.read(opened, most)
    except BlockingIOError:
        return b""
