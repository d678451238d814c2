"""Identity and privileges of a container's process, given up step by step before its program runs.

The order in `drop` follows from what each call needs:

- The process becomes non-dumpable first. A container in the same pid namespace with the same user
  could otherwise attach with ptrace, or open /proc/PID/fd, and use privileges that are not dropped
  yet (CVE-2016-9962).
- The bounding set comes next, while CAP_SETPCAP is there. Later execve of a set-user-ID program
  cannot regain a capability that is not in it.
- no_new_privs, or else the seccomp filter. The kernel accepts a filter from a process that has
  set no_new_privs or has CAP_SYS_ADMIN (seccomp(2)); otherwise an unprivileged process could make
  a set-user-ID program misbehave. With no_new_privs the filter can wait until the last moment
  before execve (`set_late_filter`), so that it need not allow the system calls of this setup.
  Without it, the filter must be set here, before CAP_SYS_ADMIN is dropped. runc does the same.
- Groups, then group, then user: after the user has changed, the process may not change its groups.
- The capability sets last. The inheritable and ambient sets are empty (CVE-2022-24769): a program
  run by a user other than root has no capabilities, as in Kubernetes.
"""

import binascii
import contextlib
import errno
import os
import resource
import select
import signal
from collections.abc import Sequence
from typing import Final

from kedge.supervisor import subordinate_ids
from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs.options import Note
from kedge.supervisor.spec import ContainerSpec

_MAX_OPEN_FILES: Final = 1_048_576
"""The limit that containerd and Docker set."""
_CHANGED_SIGNALS: Final = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
)
"""Signals that Python or the supervisor handle or ignore."""
_LAST_CAPABILITY: Final = 63
"""The sets have 64 bits; a kernel may know fewer."""


def set_oom_score(score: int, note: Note) -> None:
    """Set how soon the kernel kills this process when memory runs out."""
    try:
        _write("/proc/self/oom_score_adj", str(score))
    except PermissionError:
        # A lower score than before needs CAP_SYS_RESOURCE, which even root may lack.
        with open("/proc/self/oom_score_adj") as file:
            current = int(file.read())
        if score < current:
            note(f"oom_score_adj stays {current}: this machine does not let it be {score}")


def raise_file_limit() -> None:
    """Allow as many open files as other container runtimes do."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def reset_signals() -> None:
    """Restore the default handling of signals, since execve keeps ignored and blocked ones."""
    for number in _CHANGED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def drop(spec: ContainerSpec, *, has_ids: bool) -> None:
    """Become the container's user, unless `has_ids` says that the process already is (`map_user`),
    with its capabilities and, if it has to be set now, its seccomp filter."""
    program = binascii.a2b_base64(spec["seccomp"])
    # After `map_user`: the files in /proc of a process that is not dumpable belong to root.
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    _limit_bounding_set(spec["capabilities"])
    if spec["no_new_privileges"]:
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    elif program:
        libc.set_filter(program)
    if not has_ids:
        _become(spec)
    # Root would keep its capabilities until execve, while the container can see it.
    kept = spec["capabilities"] if spec["user"] == 0 else 0
    libc.set_capabilities(kept & libc.capabilities())


def map_user(user: int, group: int, own: int) -> bool:
    """Give the process the requested user and group if the user namespace lacks them: map its only
    user, or root, to these. Return whether the process has them now.

    `own` is this process in the machine's /proc: by its name it would be looked up in what the
    container mounted there (CVE-2019-19921, CVE-2025-52881).
    """
    users, groups = _read("uid_map", own), _read("gid_map", own)
    if subordinate_ids.count(groups) > 1:
        if subordinate_ids.has(users, user) and subordinate_ids.has(groups, group):
            return False
    elif not user and not group:
        # It is root, and a namespace with one group does not allow to set groups.
        return True
    libc.unshare(libc.NEW_USER)
    _write("uid_map", f"{user} 0 1", own)
    with contextlib.suppress(OSError):
        _write("setgroups", "deny", own)
    _write("gid_map", f"{group} 0 1", own)
    return True


def mapped_groups(groups: Sequence[int], own: int, note: Note) -> list[int]:
    """Return the supplementary groups that the user namespace has. `own` is as in `map_user`."""
    text = _read("gid_map", own)
    for missing in (group for group in groups if not subordinate_ids.has(text, group)):
        note(
            f"it does not have the supplementary group {missing}, which /etc/subgid does not grant"
        )
    return [group for group in groups if subordinate_ids.has(text, group)]


def set_late_filter(spec: ContainerSpec) -> None:
    """Set the seccomp filter of a process with no_new_privs, right before execve."""
    if spec["no_new_privileges"] and spec["seccomp"]:
        libc.set_filter(binascii.a2b_base64(spec["seccomp"]))


def drop_without_namespaces(spec: ContainerSpec, note: Note) -> None:
    """Become the container's user on a machine without namespaces, as far as possible. All such
    containers get no_new_privs: without it an ordinary user may not set a seccomp filter."""
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    if os.geteuid() == 0:
        try:
            _limit_bounding_set(spec["capabilities"])
        except PermissionError:
            note("its capabilities are those of kedge itself: this machine does not let them go")
        _become(spec)
    elif spec["user"] != os.geteuid():
        note(f"it runs as user {os.geteuid()}, not {spec['user']}: only root may change that")
    if spec["seccomp"] and not spec["no_new_privileges"]:
        libc.set_filter(binascii.a2b_base64(spec["seccomp"]))


def give_up(user: int) -> None:
    """Become a user without privileges; in a user namespace with one user, drop at least all
    capabilities."""
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    _limit_bounding_set(0)
    with contextlib.suppress(OSError):
        os.setgroups([])
    with contextlib.suppress(OSError):
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    libc.set_capabilities(0)


def die_with(supervisor: int) -> None:
    """Have the kernel kill this process when its parent, the supervisor, dies.

    The supervisor may have died before the call, so the socket to it is checked afterwards.
    """
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    poll = select.poll()
    poll.register(supervisor, select.POLLHUP)
    if poll.poll(0):
        os._exit(1)


def _become(spec: ContainerSpec) -> None:
    os.setgroups(spec["groups"])
    os.setresgid(spec["group"], spec["group"], spec["group"])
    os.setresuid(spec["user"], spec["user"], spec["user"])


def _limit_bounding_set(capabilities: int) -> None:
    for number in range(_LAST_CAPABILITY + 1):
        if capabilities >> number & 1:
            continue
        try:
            libc.prctl(libc.PR_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno == errno.EINVAL:
                # The kernel does not know this capability, nor any with a higher number.
                return
            raise


def _read(path: str, directory: int) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    with open(descriptor) as file:
        return file.read()


def _write(path: str, text: str, directory: int | None = None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
