"""A sealed copy of the Python interpreter, from which the supervisor runs."""

import fcntl
import os
import sys
from typing import Final

_MFD_EXEC: Final = 0x10
"""memfd_create: the file may be executed unless vm.memfd_noexec is 2."""
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_CHUNK: Final = 1 << 30


def sealed() -> int:
    """Return a descriptor of a sealed copy of the interpreter, in memory.

    A container can make a process that is about to become one of its own execute /proc/self/exe: a
    program that begins with "#!/proc/self/exe" does. Then it holds the file that this process
    # runs from, and can write to it as soon as that is not in use (CVE-2019-5736). runc copies
    # itself into a sealed memfd for each start; kedge does that once per supervisor.
    """
    source = os.open(sys.executable, os.O_RDONLY | os.O_CLOEXEC)
    try:
        copy = _memory_file()
        while os.sendfile(copy, source, None, _CHUNK):
            pass
    finally:
        os.close(source)
    os.fchmod(copy, 0o500)
    fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _SEALS)
    return copy


def environment() -> dict[str, str]:
    """Return the variables that the copy needs: where its library is, if it has one.

    Relocatable interpreters search it relative to their own path, and the copy has none.
    """
    with open("/proc/self/maps") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith("libpython"):
                return {"LD_LIBRARY_PATH": "/" + os.path.dirname(path)}
    return {}


def _memory_file() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("python", flags | _MFD_EXEC)
    except OSError as error:
        if error.errno != 22:
            raise
        # A kernel before 6.3 does not know the flag, and needs none.
        return os.memfd_create("python", flags)
