"""The file systems that a container sees; all of it happens in its own mount namespace."""

import contextlib
import errno
import fcntl
import glob
import os
import socket
import stat
import struct
from collections.abc import Callable, Sequence
from typing import Final

from kedge.supervisor import wire
from kedge.supervisor.files import beneath
from kedge.supervisor.kernel import devices, libc
from kedge.supervisor.rootfs import conceal, idmapped, inside, layer_copy
from kedge.supervisor.spec import BindMount, ContainerSpec, DeviceNode

Note = Callable[[str], None]

MASKED: Final = (
    *glob.glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle"),
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Both lists are those of the well-known runtimes."""

_LINKS: Final = (
    ("pts/ptmx", "ptmx"),
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("/proc/kcore", "core"),
)
_REPLACEABLE: Final = (
    "cpuinfo",
    "diskstats",
    "loadavg",
    "meminfo",
    "slabinfo",
    "stat",
    "swaps",
    "uptime",
    "sys/crypto/fips_enabled",
    "sys/kernel/ns_last_pid",
)
"""Files below /proc that a pod may mount its own over, as with runc: lxcfs does."""
_SCRATCH: Final = ("tmp", "run", "var/tmp")
_VIRTUAL: Final = ("proc", "sys", "dev")
_HERE: Final = -100
_TTY: Final = 5
"""The group that terminals belong to."""
_PROC_ROOT: Final = 1
"""The number of the root directory's inode in every /proc."""
_TIOCGPTN: Final = 0x8004_5430
_SAFE: Final = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
_PROPAGATION: Final = {
    "None": libc.MS_PRIVATE,
    "HostToContainer": libc.MS_SLAVE,
    "Bidirectional": libc.MS_SHARED,
}


class UnsafeMount(OSError):
    """A mount that would break the container's confinement."""


class Given:
    """What the supervisor gives along with a plan."""

    def __init__(
        self,
        *,
        home: str,
        place: str,
        mapped: bool,
        views: list[tuple[str, str]],
        shm: int,
        any_device: bool,
        proc: tuple[int, str],
        users: int = -1,
        first_id: int = 0,
    ) -> None:
        self.home = home
        """The container's own directory, outside."""
        self.place = place
        """Where to mount its root; nobody else sees that, so it may be the same for all."""
        self.mapped = mapped
        """Whether all of this happens in a user namespace, where less is allowed."""
        self.views = views
        """What is shown of the control groups."""
        self.shm = shm
        """A mount namespace whose root is the pod's shared memory; -1 for the machine's own."""
        self.any_device = any_device
        """Whether device nodes work everywhere: only the control group, if any, limits which of
        them the container may open."""
        self.proc = proc
        """A mount namespace, and where in it the /proc of the pid namespace is that the container
        shares; -1 if it has one of its own."""
        self.users = users
        """The pod's user namespace, not yet entered; -1 for the machine's own."""
        self.first_id = first_id
        """What id 0 of that namespace is on the machine."""


def build(plan: ContainerSpec, given: Given, note: Note) -> int:
    """Build the root and enter it, irreversibly. Returns the controlling side of the container's
    terminal, -1 if it has none.

    Kernel file systems are mounted and masked before any volume of the pod, so that no volume
    can affect the masks.
    """
    shm = _shared_memory(given)
    proc_tree = _shared_proc(given)
    libc.unshare(libc.NEW_MOUNT)
    null = devices.null()
    binds = [
        (bind, _tree(bind, given.users, no_devices=not given.any_device and not plan["privileged"]))
        for bind in sorted(plan["binds"], key=lambda each: each["target"])
    ]
    nodes = [
        (node, _node_tree(node["source"]))
        for node in plan["devices"]
        if not given.any_device or not _below_dev(node)
    ]
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    _mount_root(plan, given, given.place, note)
    _own_new_files(given)
    root = os.open(given.place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for path in plan["hidden"]:
        _hide(root, path, null)
    _proc_and_sys(root, plan, given, proc_tree)
    _dev(root, plan, given, shm)
    terminal = _terminal(root) if plan["terminal"] else -1
    if plan["masked"] and not plan["privileged"]:
        _mask(root, null)
    proc = inside.plain_directory(root, "proc")
    for node, tree in nodes:
        libc.move_mount(tree, inside.file(root, node["target"]))
    for bind, tree in binds:
        _place(root, bind, tree, proc)
    inside.directory(root, plan["directory"])
    os.fchdir(root)
    _enter()
    if plan["read_only"]:
        libc.set_mount(_HERE, "/", on=libc.ATTR_RDONLY)
    return terminal


def _own_new_files(given: Given) -> None:
    """Make mount points and in-memory file systems belong to root in the container."""
    if given.users >= 0:
        libc.own_new_files(given.first_id, given.first_id)


def _enter() -> None:
    """Make the current directory the root, and forget the old one."""
    libc.pivot_root(".", ".")
    libc.unmount(".")
    os.chdir("/")


def _shared_memory(given: Given) -> int:
    """The pod's shared memory as a tree that can be mounted; it lives in a namespace of its own so
    that nothing of it is mounted on the machine."""
    if given.shm < 0:
        return libc.open_tree("/dev/shm")
    return _tree_of(given.shm, "/")


def _shared_proc(given: Given) -> int:
    """The /proc of a pid namespace that this process does not enter before everything is built;
    -1 if it is in it already."""
    namespace, path = given.proc
    if namespace < 0:
        return -1
    tree = _proc_of_children(given.place) if given.users >= 0 else _tree_of(namespace, path)
    if not libc.is_proc(tree) or os.fstat(tree).st_ino != _PROC_ROOT:
        raise UnsafeMount(
            errno.EPERM, f"{path} of the container whose processes it shares is not /proc"
        )
    safe = libc.ATTR_NOSUID | libc.ATTR_NODEV | libc.ATTR_NOEXEC
    libc.set_mount(tree, on=safe)
    return tree


def _proc_of_children(place: str) -> int:
    """The /proc of the pid namespace that children of this process are in, mounted by one of them.

    The /proc of another container in a user namespace cannot be copied: the kernel has locked its
    masks on top of it. The container sees the child with all its privileges, but processes in a
    user namespace cannot trace or signal a process of the machine.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            libc.unshare(libc.NEW_MOUNT)
            libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
            libc.mount("proc", place, "proc", _SAFE)
            wire.post(theirs, b"{}", [libc.open_tree(place, recursive=False)])
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        try:
            _, (tree,) = wire.take(ours)
        except wire.Closed:
            raise OSError(errno.EPERM, "/proc of the pod cannot be mounted") from None
        finally:
            os.waitpid(pid, 0)
    return tree


def _tree_of(namespace: int, path: str) -> int:
    """A mount of another mount namespace as a tree that can be mounted."""
    home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    libc.setns(namespace, libc.NEW_MOUNT)
    try:
        return libc.open_tree(path, recursive=False)
    finally:
        libc.setns(home, libc.NEW_MOUNT)
        os.close(home)


def _tree(bind: BindMount, users: int, *, no_devices: bool) -> int:
    source = bind["source"]
    if bind["propagation"] == "Bidirectional":
        _need_shared(source)
    try:
        tree = _source_tree(bind)
        if users >= 0:
            idmapped.show(tree, source, users)
        # A private copy of a shared mount could not become its slave any more, so this comes
        # before everything is made private.
        libc.set_mount(tree, propagation=_PROPAGATION[bind["propagation"]], recursive=True)
        if no_devices:
            libc.set_mount(tree, on=libc.ATTR_NODEV, recursive=True)
        if bind["read_only"]:
            libc.set_mount(tree, on=libc.ATTR_RDONLY, recursive=bind["recursive"])
    except OSError as error:
        raise _unmountable(bind, error) from error
    return tree


def _source_tree(bind: BindMount) -> int:
    """Return the source of a bind mount as a detached tree. Other containers of the pod may
    write to the volume, and replace any directory of a subPath by a link; the kernel resolves it
    inside the volume, and the result is mounted (CVE-2017-1002101, CVE-2021-25741)."""
    if not bind["part"]:
        return libc.open_tree(bind["source"])
    with beneath.directory(bind["source"]) as top:
        found = beneath.locate(top, bind["part"], across_mounts=True)
    try:
        return libc.open_tree("", at=found)
    finally:
        os.close(found)


def _need_shared(source: str) -> None:
    """Nothing mounted below a mount of the machine that is not shared would ever be seen there."""
    path, best, shared = os.path.realpath(source), "", False
    with open("/proc/self/mountinfo") as file:
        for line in file:
            fields = line.partition(" - ")[0].split()
            place = fields[4].replace("\\040", " ")
            inside_it = f"{path}/".startswith(place.rstrip("/") + "/")
            if inside_it and len(place) >= len(best):
                best, shared = place, any(each.startswith("shared:") for each in fields[6:])
    if not shared:
        raise OSError(22, f'path "{source}" is mounted on "{best}" but it is not a shared mount')


def _place(root: int, bind: BindMount, tree: int, proc: int) -> None:
    """Mount a volume. Its target is a descriptor, so that it cannot be replaced between the
    check and the mount (CVE-2021-30465)."""
    try:
        target = inside.like(root, bind["target"], tree)
        _refuse_proc(target, bind, proc)
        libc.move_mount(tree, target)
        os.close(target)
        os.close(tree)
    except OSError as error:
        raise _unmountable(bind, error) from error


def _refuse_proc(target: int, bind: BindMount, proc: int) -> None:
    """Refuse to mount over /proc or below it, but for some files that tell of the machine.

    A volume there would replace files that security depends on (CVE-2019-16884,
    CVE-2023-28642). runc has the same rule and the same exceptions.
    """
    below, where = f"{os.readlink(_name(proc))}/", f"{os.readlink(_name(target))}/"
    if where.startswith(below) and where.removeprefix(below).rstrip("/") not in _REPLACEABLE:
        what = f'"{bind["source"]}" at "{bind["target"]}"'
        raise UnsafeMount(errno.EPERM, f"failed to mount {what}: it is inside /proc")


def _unmountable(bind: BindMount, error: OSError) -> OSError:
    if isinstance(error, UnsafeMount):
        return error
    number = error.errno or 0
    unmappable = isinstance(error, idmapped.Unmappable)
    reason = str(error.strerror) if unmappable else os.strerror(number).lower()
    return OSError(number, f'failed to mount "{bind["source"]}" at "{bind["target"]}": {reason}')


def _mount_root(plan: ContainerSpec, given: Given, place: str, note: Note) -> None:
    if plan["lowers"]:
        _layers(plan["lowers"], given, place, note)
    elif given.mapped:
        _view_by_parts(plan, given, place)
        note(
            "the machine's own directories are read-only in the container, but for their top level"
        )
    else:
        _overlay(["/"], given, place, note, concealed=plan["concealed"])
        _show(plan, given, place, "")


def _layers(lowers: list[str], given: Given, place: str, note: Note) -> None:
    try:
        _overlay(lowers, given, place, note, "userxattr" if given.mapped else "")
    except PermissionError:
        if given.users >= 0:
            raise
        layer_copy.merge(lowers, f"{given.home}/copy")
        libc.mount(f"{given.home}/copy", place, flags=libc.MS_BIND)


def _overlay(
    lowers: list[str],
    given: Given,
    place: str,
    note: Note,
    extra: str = "",
    *,
    concealed: Sequence[str] = (),
) -> None:
    home, users = given.home, given.users
    try:
        _overlay_at(lowers, home, place, extra, concealed, users=users)
    except OSError as error:
        if error.errno != 22:
            raise
        # A file system that cannot be the upper one, such as another overlay: memory can.
        libc.mount("tmpfs", f"{home}/upper", "tmpfs", data="mode=755")
        for name in ("upper", "work"):
            os.mkdir(f"{home}/upper/{name}")
        _overlay_at(lowers, f"{home}/upper", place, extra, concealed, users=users)
        note("what the container writes to its root is kept in memory")


def _overlay_at(
    lowers: list[str],
    home: str,
    place: str,
    extra: str,
    concealed: Sequence[str] = (),
    *,
    users: int,
) -> None:
    below = lowers[0]
    if users >= 0:
        lowers = idmapped.lowers(lowers, f"{home}/lowers", users)
    top = os.stat(lowers[0])
    # The container sees who owns the upper directory as the owner of its root. A user namespace
    # knows one owner only, which lets it write where it otherwise could not.
    with contextlib.suppress(OSError):
        os.chown(f"{home}/upper", top.st_uid, top.st_gid)
    os.chmod(f"{home}/upper", stat.S_IMODE(top.st_mode))
    if concealed:
        opaque = conceal.USER if extra else conceal.TRUSTED
        conceal.conceal(below, f"{home}/upper", concealed, opaque, seen_at=lowers[0])
    if len(lowers) > 1:
        # All names have to fit into one page of options.
        directory = os.path.commonpath(lowers)
        os.chdir(directory)
        lowers = [os.path.relpath(each, directory) for each in lowers]
    options = f"lowerdir={':'.join(map(_escaped, lowers))},upperdir={_escaped(home)}/upper"
    # Volatile: the end of a container must not wait until the whole disk is in order; nobody
    # mounts what it wrote a second time.
    options += f",workdir={_escaped(home)}/work,volatile" + (f",{extra}" if extra else "")
    # Devices that an image brings are not to be devices.
    libc.mount("overlay", place, "overlay", libc.MS_NODEV, options)


def _escaped(path: str) -> str:
    return "".join("\\" + sign if sign in "\\:," else sign for sign in path)


def _view_by_parts(plan: ContainerSpec, given: Given, place: str) -> None:
    """The machine's own file system for who may not overlay it as a whole: each directory by
    itself, writable at its top, and memory where programs expect to write."""
    parts = sorted(os.scandir("/"), key=lambda each: each.name)
    libc.mount("tmpfs", place, "tmpfs", libc.MS_NODEV, "mode=755")
    for part in parts:
        path = f"{place}/{part.name}"
        if part.is_symlink():
            os.symlink(os.readlink(part.path), path)
        elif part.is_dir():
            os.mkdir(path)
            if part.name not in (*_VIRTUAL, *_SCRATCH) and part.path not in plan["concealed"]:
                home = f"{given.home}/parts/{part.name}"
                _view_of_part(part.path, home, path, plan["concealed"], "userxattr", given.users)
    for name in _SCRATCH:
        if os.path.isdir(f"{place}/{name}"):
            libc.mount("tmpfs", f"{place}/{name}", "tmpfs", _SAFE, "mode=1777")
    _show(plan, given, place, "userxattr")


def _view_of_part(
    path: str, home: str, place: str, concealed: Sequence[str], extra: str, users: int
) -> None:
    for name in ("upper", "work"):
        os.makedirs(f"{home}/{name}", exist_ok=True)
    try:
        _overlay_at([path], home, place, extra, concealed, users=users)
    except OSError:
        target = os.open(place, os.O_PATH | os.O_CLOEXEC)
        _bind_read_only(path, target, users)
        os.close(target)
        _cover_below(path, place, concealed)


def _cover_below(path: str, place: str, concealed: Sequence[str]) -> None:
    """Mount empty directories on concealed paths below a directory that could not be overlaid."""
    root, null = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), devices.null()
    for each in concealed:
        inside_it = os.path.relpath(os.path.realpath(each), os.path.realpath(path))
        if not inside_it.startswith(".."):
            _hide(root, inside_it, null)
    os.close(null)
    os.close(root)


def _show(plan: ContainerSpec, given: Given, place: str, extra: str) -> None:
    """Show files and directories of the machine that lie below concealed directories. What is
    concealed below them again, kedge's own files, stays so."""
    _own_new_files(given)
    root = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, path in enumerate(filter(os.path.exists, plan["shown"])):
        is_directory = os.path.isdir(path)
        target = (inside.directory if is_directory else inside.file)(root, path)
        if is_directory:
            home = f"{given.home}/shown/{number}"
            _view_of_part(path, home, _name(target), plan["concealed"], extra, given.users)
        else:
            _bind_read_only(path, target, given.users)
        os.close(target)
    os.close(root)


def _hide(root: int, path: str, null: int) -> None:
    try:
        found = inside.find(root, path)
    except PermissionError:
        # What we may not even reach, nobody reaches who has less rights.
        return
    if found is None:
        return
    _cover(found, null)


def _cover(found: int, null: int) -> None:
    """Put an empty directory over a directory, the null device over anything else."""
    if stat.S_ISDIR(os.fstat(found).st_mode):
        libc.mount("tmpfs", _name(found), "tmpfs", _SAFE | libc.MS_RDONLY, "size=0,mode=755")
    else:
        tree = _node_tree("", null)
        libc.move_mount(tree, found)
        os.close(tree)
    os.close(found)


def _name(descriptor: int) -> str:
    """A descriptor as a path."""
    return f"/proc/self/fd/{descriptor}"


def _mount(root: int, path: str, kind: str, flags: int, data: str = "") -> None:
    target = inside.plain_directory(root, path.removeprefix("/"))
    libc.mount(kind, _name(target), kind, flags, data)
    os.close(target)


def _proc_and_sys(root: int, plan: ContainerSpec, given: Given, proc_tree: int) -> None:
    if proc_tree >= 0:
        libc.move_mount(proc_tree, inside.plain_directory(root, "proc"))
    else:
        _mount(root, "/proc", "proc", _SAFE)
    lock = 0 if plan["privileged"] else libc.MS_RDONLY
    try:
        _mount(root, "/sys", "sysfs", _SAFE | lock)
    except PermissionError:
        # Only who owns the network namespace may mount it.
        target = inside.plain_directory(root, "sys")
        _bind_read_only("/sys", target, -1)
        os.close(target)
        return
    if given.views == [("", "")]:
        _mount(root, "/sys/fs/cgroup", "cgroup2", _SAFE | lock)
    elif given.views:
        _first_version(root, given, lock)


def _bind_read_only(source: str, target: int, users: int) -> None:
    tree = libc.open_tree(source)
    if users >= 0:
        idmapped.show(tree, source, users)
    libc.set_mount(tree, on=libc.ATTR_RDONLY, recursive=True)
    libc.move_mount(tree, target)
    os.close(tree)


def _first_version(root: int, given: Given, lock: int) -> None:
    _mount(root, "/sys/fs/cgroup", "tmpfs", _SAFE, "mode=755,size=64k")
    top = inside.plain_directory(root, "sys/fs/cgroup")
    for name, options in given.views:
        os.mkdir(name, dir_fd=top)
        kind = "cgroup" if options else "cgroup2"
        libc.mount(kind, f"{_name(top)}/{name}", kind, _SAFE | lock, options)
    if lock:
        libc.mount("", _name(top), "", _SAFE | libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY)
    os.close(top)


def _dev(root: int, plan: ContainerSpec, given: Given, shm: int) -> None:
    flags = libc.MS_NOSUID | libc.MS_STRICTATIME | (0 if given.any_device else libc.MS_NODEV)
    _mount(root, "/dev", "tmpfs", flags, "mode=755,size=64m")
    top = inside.plain_directory(root, "dev")
    dev = _name(top)
    for name in ("pts", "mqueue", "shm"):
        os.mkdir(f"{dev}/{name}")
    for source, name in _LINKS:
        os.symlink(source, f"{dev}/{name}")
    previous = os.umask(0)
    _nodes(dev, plan, given)
    os.umask(previous)
    owner = "" if given.mapped else f",gid={given.first_id + _TTY}"
    pts = f"newinstance,ptmxmode=0666,mode=0620{owner}"
    libc.mount("devpts", f"{dev}/pts", "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, pts)
    # Whose message queues may be mounted follows from whose namespace it is.
    with contextlib.suppress(PermissionError):
        libc.mount("mqueue", f"{dev}/mqueue", "mqueue", _SAFE)
    target = os.open(f"{dev}/shm", os.O_PATH | os.O_CLOEXEC)
    libc.move_mount(shm, target)
    os.close(target)
    os.close(top)


def _terminal(root: int) -> int:
    """Open a terminal of the container's own, and give it its well-known name.

    Both happen before volumes are mounted: links in a volume at /dev could redirect the open or
    the mount to another file (CVE-2025-52565).
    """
    top = inside.plain_directory(root, "dev")
    dev = _name(top)
    controlling = os.open(f"{dev}/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    number = struct.unpack("I", fcntl.ioctl(controlling, _TIOCGPTN, b"\0" * 4))[0]
    os.close(os.open(f"{dev}/console", os.O_CREAT | os.O_CLOEXEC, 0o620))
    libc.mount(f"{dev}/pts/{number}", f"{dev}/console", flags=libc.MS_BIND)
    os.close(top)
    return controlling


def make_nodes(dev: str) -> None:
    """The well-known devices, as far as they may be made."""
    os.makedirs(dev, exist_ok=True)
    previous = os.umask(0)
    for name, major, minor in devices.NODES:
        with contextlib.suppress(OSError):
            os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    os.umask(previous)


def _nodes(dev: str, plan: ContainerSpec, given: Given) -> None:
    """Make device nodes, or mount them if only mounted ones work."""
    if not given.any_device:
        for name, _, _ in devices.NODES:
            _bind_node(f"/dev/{name}", f"{dev}/{name}")
        return
    for name, major, minor in devices.NODES:
        os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    if plan["privileged"]:
        _all_nodes("/dev", dev)
    for node in filter(_below_dev, plan["devices"]):
        _one_node(node, dev, given.first_id)


def _below_dev(node: DeviceNode) -> bool:
    """Elsewhere devices are mounted: images are not to bring any, so none can be made there."""
    return os.path.normpath(node["target"]).startswith("/dev/")


def _bind_node(source: str, path: str) -> None:
    target = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    tree = _node_tree(source)
    libc.move_mount(tree, target)
    os.close(tree)
    os.close(target)


def _node_tree(source: str, at: int = _HERE) -> int:
    """A node of the machine as a tree that can be mounted. What is written to the device does not
    count as writing to a read-only mount; its mode, owner and times do, which are the machine's: a
    container whose root is that of the machine could take /dev/null from everybody else."""
    tree = libc.open_tree(source, at=at, recursive=False)
    libc.set_mount(tree, on=libc.ATTR_RDONLY)
    return tree


def _all_nodes(source: str, target: str) -> None:
    """Every device of the machine, for who may do everything."""
    for entry in os.scandir(source):
        path = f"{target}/{entry.name}"
        if entry.name in ("pts", "shm", "mqueue", "fd", "console") or os.path.lexists(path):
            continue
        status = entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            os.mkdir(path, 0o755)
            _all_nodes(entry.path, path)
        elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            # With a user namespace it keeps the machine's owner: devices that only root may
            # open, such as disks, cannot be opened in the container.
            _copy_node(path, status)


def _one_node(node: DeviceNode, dev: str, first_id: int) -> None:
    """Add a device of the plan below /dev. The container may use it, so it keeps its owner in
    the container."""
    path = dev + os.path.normpath(node["target"]).removeprefix("/dev")
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    _copy_node(path, os.stat(node["source"]), first_id)


def _copy_node(path: str, status: os.stat_result, first_id: int = 0) -> None:
    os.mknod(path, status.st_mode, status.st_rdev)
    os.chown(path, first_id + status.st_uid, first_id + status.st_gid)


def _mask(root: int, null: int) -> None:
    for path in MASKED:
        if (found := inside.find(root, path)) is not None:
            _cover(found, null)
    for path in READ_ONLY:
        if (found := inside.find(root, path)) is not None:
            tree = libc.open_tree("", at=found)
            libc.set_mount(tree, on=libc.ATTR_RDONLY | libc.ATTR_NOSUID, recursive=True)
            libc.move_mount(tree, found)
            os.close(tree)
            os.close(found)
