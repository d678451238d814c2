"""The program and the working directory of a container, looked up inside its root.

The container chooses both paths and can replace every part of them at any time. So they are
resolved by openat2 with the container's root as root and without magic links, after every
descriptor of the machine is closed; with those two rules no path leads out of the container.
"""

import errno
import os

from kedge.supervisor.kernel import libc
from kedge.supervisor.spec import ContainerSpec


class LaunchError(Exception):
    """The program cannot be run; the text is for the user."""


def enter_directory(root: int, path: str) -> bool:
    """Change to a directory inside the root; returns False if only the container's user may
    enter it, which is then done later, with that user's privileges.

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


def change_directory(path: str) -> None:
    """Change to a directory with the privileges of the user, who can reach only the container."""
    try:
        os.chdir(path)
    except OSError as error:
        raise _no_directory(path, error) from error
    _check_inside(path)


def _check_inside(path: str) -> None:
    """Refuse a working directory outside the root, as runc does after CVE-2024-21626: the kernel
    cannot name a path for it."""
    try:
        os.getcwd()
    except OSError as error:
        raise LaunchError(f'working directory "{path}" is outside of the container') from error


def _no_directory(path: str, error: OSError) -> LaunchError:
    return LaunchError(f'working directory "{path}": {_reason(error)}')


def admitted(root: int, spec: ContainerSpec) -> list[str]:
    """Return the candidate paths of the program, without those that lead through magic links.

    An image whose program is /proc/self/exe, or a link to it, would run the supervisor's own
    interpreter in the container and could write to it (CVE-2019-5736). The check comes before
    the seccomp filter, which may not know openat2. A container that replaces the program between
    this check and execve gains nothing: by then no descriptor of the machine is
    open and the interpreter is a sealed copy.
    """
    name, found = spec["argv"][0], []
    for candidate in candidates(spec):
        try:
            path = os.path.join(spec["directory"], candidate)
            os.close(libc.open_in(root, path, os.O_PATH))
        except PermissionError:
            # Paths that only the user can reach are searched as the user.
            pass
        except OSError as error:
            if "/" in name:
                raise _no_program(name, error) from error
            continue
        found.append(candidate)
    return found


def candidates(spec: ContainerSpec) -> list[str]:
    """Return the possible paths of the program, in a shell's order."""
    name = spec["argv"][0]
    if "/" in name:
        return [name]
    path = next((each[5:] for each in spec["env"] if each.startswith("PATH=")), "")
    return [f"{directory or '.'}/{name}" for directory in path.split(":")]


def find(name: str, paths: list[str]) -> str:
    """Return the path of the program, as a shell finds it. Errors have the words of Go's os/exec,
    which users know from other runtimes."""
    if "/" in name:
        _check(name)
        return name
    for candidate in paths:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise LaunchError(f'exec: "{name}": executable file not found in $PATH')


def _check(path: str) -> None:
    try:
        directory = os.path.isdir(path)
        os.stat(path)
    except OSError as error:
        raise _no_program(path, error) from error
    if directory:
        raise LaunchError(f'exec: "{path}": is a directory')
    if not os.access(path, os.X_OK):
        raise LaunchError(f'exec: "{path}": permission denied')


def _no_program(path: str, error: OSError) -> LaunchError:
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return LaunchError(f'exec: "{path}": it is a magic link of /proc, or links lead in circles')
    return LaunchError(f'exec: "{path}": stat {path}: {_reason(error)}')


def failed_exec(path: str, error: OSError) -> LaunchError:
    """Return the error for a program that execve refuses."""
    return LaunchError(f"exec {path}: {_reason(error)}")


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()
