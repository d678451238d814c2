"""Who a container's process is and what it may do; given up step by step, right before it runs."""

import base64
import contextlib
import os
import resource
import select
import signal
from typing import Final

from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs.rootfs import Note
from kedge.supervisor.spec import ContainerSpec

_MOST_FILES: Final = 1_048_576
_SET: Final = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
)
"""Signals that Python or the supervisor handle or ignore."""
_LAST: Final = 63
"""No kernel has a capability beyond this one."""


def score(wanted: int, note: Note) -> None:
    """How soon the kernel takes this process when memory runs out."""
    try:
        _write("/proc/self/oom_score_adj", str(wanted))
    except PermissionError:
        # To be spared more than before takes a capability that even root may lack.
        with open("/proc/self/oom_score_adj") as file:
            current = int(file.read())
        if wanted < current:
            note(f"oom_score_adj stays {current}: this machine does not let it be {wanted}")


def limits() -> None:
    """As many open files as the well-known runtimes give."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def quiet_signals() -> None:
    """What Python has set for itself is not for the container."""
    for number in _SET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def drop(plan: ContainerSpec, *, mapped: bool) -> None:
    """Become the user, with the plan's capabilities and, if it has to be set now, its seccomp
    filter.

    In a user namespace there is one user, who is called by the right number already.
    """
    program = base64.b64decode(plan["seccomp"])
    # A process of the container with the same rights could otherwise trace this one until execve,
    # and use what it has not yet given up (CVE-2016-9962). It comes after the map of users, whose
    # files in /proc belong to the machine's root from here on.
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    _bound(plan["capabilities"])
    if plan["no_new_privileges"]:
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    elif program:
        # Without that promise only the powerful may set a filter, so it comes first.
        libc.set_filter(program)
    if not mapped:
        _become(plan)
    # Root would keep its capabilities until execve, while the container can see it.
    kept = plan["capabilities"] if plan["user"] == 0 else 0
    libc.set_capabilities(kept & libc.capabilities())


def map_user(user: int, group: int, own: int) -> None:
    """Map the only user of the namespace to the requested id.

    `own` is this process in the machine's /proc: by its name it would be looked up in what the
    container mounted there (CVE-2019-19921, CVE-2025-52881).
    """
    if not user and not group:
        return
    libc.unshare(libc.NEW_USER)
    _write("uid_map", f"{user} 0 1", own)
    with contextlib.suppress(OSError):
        _write("setgroups", "deny", own)
    _write("gid_map", f"{group} 0 1", own)


def filter_late(plan: ContainerSpec) -> None:
    """Set the filter that did not have to be set before the right to do so was given up."""
    if plan["no_new_privileges"] and plan["seccomp"]:
        libc.set_filter(base64.b64decode(plan["seccomp"]))


def become_plainly(plan: ContainerSpec, note: Note) -> None:
    """The same where there are no namespaces, as far as it goes. Whoever has not promised to get
    no more privileges may not set a filter there, so all do."""
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    if os.geteuid() == 0:
        try:
            _bound(plan["capabilities"])
        except PermissionError:
            note("its capabilities are those of kedge itself: this machine does not let them go")
        _become(plan)
    elif plan["user"] != os.geteuid():
        note(f"it runs as user {os.geteuid()}, not {plan['user']}: only root may change that")
    if plan["seccomp"] and not plan["no_new_privileges"]:
        libc.set_filter(base64.b64decode(plan["seccomp"]))


def give_up(user: int) -> None:
    """Become a user without privileges; in a user namespace with one user, drop at least all
    capabilities."""
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    _bound(0)
    with contextlib.suppress(OSError):
        os.setgroups([])
    with contextlib.suppress(OSError):
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    libc.set_capabilities(0)


def die_with(supervisor: int) -> None:
    """Be killed when the supervisor dies; whoever changes user must ask for it anew."""
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    poll = select.poll()
    poll.register(supervisor, select.POLLHUP)
    if poll.poll(0):
        os._exit(1)


def _become(plan: ContainerSpec) -> None:
    os.setgroups(plan["groups"])
    os.setresgid(plan["group"], plan["group"], plan["group"])
    os.setresuid(plan["user"], plan["user"], plan["user"])


def _bound(capabilities: int) -> None:
    for number in range(_LAST + 1):
        if capabilities >> number & 1:
            continue
        try:
            libc.prctl(libc.PR_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno == 22:
                return
            raise


def _write(path: str, text: str, directory: int | None = None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
