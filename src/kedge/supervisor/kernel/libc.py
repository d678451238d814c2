"""System calls that Python's standard library does not offer, called through the C library."""

import ctypes
import os
import signal
import struct
from typing import Final

NEW_MOUNT: Final = 0x0002_0000
NEW_CGROUP: Final = 0x0200_0000
NEW_UTS: Final = 0x0400_0000
NEW_IPC: Final = 0x0800_0000
NEW_USER: Final = 0x1000_0000
NEW_PID: Final = 0x2000_0000
NEW_NET: Final = 0x4000_0000

MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x4_0000
MS_SLAVE: Final = 0x8_0000
MS_SHARED: Final = 0x10_0000
MS_STRICTATIME: Final = 0x100_0000
DETACH: Final = 2
"""umount2: detach now, free the mount when it is no longer used."""

ATTR_RDONLY: Final = 0x1
ATTR_NOSUID: Final = 0x2
ATTR_NODEV: Final = 0x4
ATTR_NOEXEC: Final = 0x8
_ATTR_IDMAP: Final = 0x10_0000

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_NAME: Final = 15
PR_SET_SECCOMP: Final = 22
PR_CAPBSET_READ: Final = 23
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38

NO_CROSSING: Final = 0x1
"""openat2: stay on the file system of the directory."""
NO_MAGIC_LINKS: Final = 0x2
"""openat2: refuse links that the kernel follows by itself, such as /proc/self/fd/N."""
NO_LINKS: Final = 0x4
"""openat2: refuse links of any kind."""
BENEATH: Final = 0x8
"""openat2: refuse paths that leave the directory at any point."""
IN_ROOT: Final = 0x10
"""openat2: the directory is the root, for links and for dots as well."""

_PROC_MAGIC: Final = 0x9FA0
_CLONE_PARENT: Final = 0x8000
_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_OPEN_TREE_CLONE: Final = 1
_MOVE_FROM_AND_TO_EMPTY: Final = 0x4 | 0x40
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITY_VERSION_3: Final = 0x2008_0522
_ATTEMPTS: Final = 64

_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_CLOSE_RANGE: Final = 436
_OPENAT2: Final = 437
_MOUNT_SETATTR: Final = 442
# Newer system calls have one number on all architectures; these do not.
_OLD: Final = {
    "x86_64": {"pivot_root": 155, "capset": 126, "capget": 125, "bpf": 321, "clone": 56},
    "aarch64": {"pivot_root": 41, "capset": 91, "capget": 90, "bpf": 280, "clone": 220},
}.get(os.uname().machine, {})

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
# The same library, but calls keep the interpreter lock.
_locked: Final = ctypes.PyDLL(None, use_errno=True)
_locked.syscall.restype = ctypes.c_long


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(what: str, number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> int:
    # Arguments of variable number must have the width of a register.
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *wide), what)


def _old(what: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> int:
    if what not in _OLD:
        raise OSError(38, f"{what}: not known for {os.uname().machine}")
    return _syscall(what, _OLD[what], *arguments)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def fork_sibling() -> int:
    """Fork a child of this process's parent. Only for processes with one thread: what Python and
    the C library do for others after a fork is not done."""
    if "clone" not in _OLD:
        raise OSError(38, f"clone: not known for {os.uname().machine}")
    flags, rest = ctypes.c_long(_CLONE_PARENT | signal.SIGCHLD), [ctypes.c_long(0)] * 4
    return _checked(_locked.syscall(ctypes.c_long(_OLD["clone"]), flags, *rest), "clone")


def setns(descriptor: int, flags: int) -> None:
    _checked(_libc.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind),
        ctypes.c_ulong(flags),
        os.fsencode(data),
    )
    _checked(result, f"mount {kind or source} on {target}")


def unmount(target: str, flags: int = DETACH) -> None:
    _checked(_libc.umount2(os.fsencode(target), flags), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    _old("pivot_root", os.fsencode(new), os.fsencode(old))


def open_tree(path: str, *, at: int = _AT_FDCWD, recursive: bool = True) -> int:
    """Return a detached copy of a mount; an empty path means the descriptor itself."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    if not path:
        flags |= _AT_EMPTY_PATH
    return _syscall(f"open tree {path}", _OPEN_TREE, at, os.fsencode(path), flags)


def move_mount(tree: int, target: int) -> None:
    """Attach a mount from `open_tree` to the file or directory behind a descriptor."""
    _syscall("move mount", _MOVE_MOUNT, tree, b"", target, b"", _MOVE_FROM_AND_TO_EMPTY)


def set_mount(
    tree: int, path: str = "", *, on: int = 0, propagation: int = 0, recursive: bool = False
) -> None:
    """Change the attributes or the propagation of a mount, or of it and all that is below."""
    attributes = struct.pack("=QQQQ", on, 0, propagation, 0)
    flags = (_AT_RECURSIVE if recursive else 0) | (0 if path else _AT_EMPTY_PATH)
    name = os.fsencode(path)
    _syscall("mount_setattr", _MOUNT_SETATTR, tree, name, flags, attributes, len(attributes))


def map_ids(tree: int, user_namespace: int, *, recursive: bool) -> None:
    """Map the owners on a mount from `open_tree` to the ids of a user namespace; new files are
    stored with the ids inside that namespace."""
    attributes = struct.pack("=QQQQ", _ATTR_IDMAP, 0, 0, user_namespace)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _syscall("mount_setattr", _MOUNT_SETATTR, tree, b"", flags, attributes, len(attributes))


def open_in(root: int, path: str, flags: int, resolve: int = 0) -> int:
    """Open a path as a process whose root is that directory would, but follow no magic links."""
    return open_at(root, path, flags, IN_ROOT | NO_MAGIC_LINKS | resolve)


def open_at(directory: int, path: str, flags: int, resolve: int) -> int:
    """Open a path from a directory under the rules of openat2."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
    for left in reversed(range(_ATTEMPTS)):
        try:
            return _syscall(f"open {path}", _OPENAT2, directory, os.fsencode(path), how, len(how))
        except BlockingIOError:
            # A rename happened meanwhile, so the kernel cannot verify ".." and asks for a retry.
            # A container that renames all the time gets an error.
            if not left:
                raise
    raise AssertionError("unreachable")


def is_proc(descriptor: int) -> bool:
    """Return whether a file is on a procfs."""
    status = ctypes.create_string_buffer(256)
    _checked(_libc.fstatfs(descriptor, status), "fstatfs")
    return int(struct.unpack_from("@l", status)[0]) == _PROC_MAGIC


def close_range(first: int, last: int) -> None:
    """Close all descriptors from the first to the last, both included."""
    _syscall("close_range", _CLOSE_RANGE, first, last, 0)


def prctl(option: int, argument: int = 0) -> int:
    wide = [ctypes.c_ulong(each) for each in (argument, 0, 0, 0)]
    return _checked(_libc.prctl(option, *wide), f"prctl {option}")


def name_process(name: str) -> None:
    """Set the name that ps shows."""
    _libc.prctl(PR_SET_NAME, os.fsencode(name)[:15])


def capabilities() -> int:
    """Return the effective capability set of this process."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _old("capget", header, data)
    low, _, _, high, _, _ = struct.unpack("=6I", data.raw)
    return int(low) | int(high) << 32


def own_new_files(user: int, group: int) -> None:
    """Make this process create files as a user and group, with its privileges unchanged."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _old("capget", header, data)
    _libc.setfsgid(ctypes.c_uint(group))
    _libc.setfsuid(ctypes.c_uint(user))
    # The kernel drops the effective file capabilities when the fsuid is no longer 0; they stay
    # permitted. Both calls do not report failure, so it is checked afterwards.
    _old("capset", header, data.raw)
    now = _libc.setfsuid(-1) & 0xFFFF_FFFF, _libc.setfsgid(-1) & 0xFFFF_FFFF
    if now != (user, group):
        raise OSError(1, f"setfsuid: files cannot be given to user {user}")


def set_capabilities(effective: int) -> None:
    """Set the permitted and the effective set; the inheritable set becomes empty."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    low, high = effective & 0xFFFF_FFFF, effective >> 32
    _old("capset", header, struct.pack("=6I", low, low, 0, high, high, 0))


def set_filter(program: bytes) -> None:
    """Filter all later system calls of this process with a classic BPF program (seccomp)."""
    held = buffer(program)
    # struct sock_fprog: the number of instructions, padding, their address.
    described = struct.pack("@HP", len(program) // 8, address(held))
    result = _libc.prctl(
        PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), described, ctypes.c_ulong(0)
    )
    _checked(result, "seccomp")


def buffer(content: bytes) -> ctypes.Array[ctypes.c_char]:
    """Return memory with a fixed address, valid as long as the object lives."""
    return ctypes.create_string_buffer(content, len(content))


def address(held: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(held)


def bpf(command: int, attributes: bytes) -> int:
    return _old("bpf", command, attributes, len(attributes))
