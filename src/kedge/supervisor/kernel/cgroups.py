"""Control groups in one hierarchy (v2), in one per controller (v1), or in both."""

import contextlib
import errno
import math
import os
import select
import signal
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

ROOT: Final = "/sys/fs/cgroup"
WANTED: Final = ("cpu", "cpuacct", "memory", "pids", "devices", "hugetlb")
"""v1 controllers that are used for containers."""
DELEGATED: Final = frozenset({"cpu", "memory", "pids", "hugetlb", "io"})
"""v2 controllers that are enabled for containers."""
_UNLIMITED: Final = -1
_MOST_SHARES: Final = 262_144
_MOST_WEIGHT: Final = 10_000
_ATTEMPTS: Final = 20


class Hierarchy:
    """One tree of control groups."""

    def __init__(
        self, place: str, controllers: frozenset[str], unified: bool, mount: str = ""
    ) -> None:
        self.place = place
        """The directory below which kedge makes its groups: where the hierarchy is mounted, or a
        group in it that was delegated."""
        self.mount = mount or place
        """Where it is mounted."""
        self.controllers = controllers
        """Its controllers; for v2 those that can be enabled."""
        self.unified = unified
        """Whether it is cgroup v2."""

    @property
    def is_delegated(self) -> bool:
        """Whether only a part of it may be used."""
        return self.place != self.mount

    def document(self) -> dict[str, Any]:
        """Return it as the supervisor sends it to agents."""
        return {
            "place": self.place,
            "controllers": sorted(self.controllers),
            "unified": self.unified,
            "mount": self.mount,
        }


def discover(mountinfo: str) -> list[Hierarchy]:
    """Return the mounted hierarchies in /proc/self/mountinfo; the first mount of each."""
    found: dict[frozenset[str], Hierarchy] = {}
    # The kernel escapes only the spaces and ends of lines of ASCII in names.
    for line in mountinfo.strip("\n").split("\n"):
        left, _, right = line.partition(" - ")
        kind, _, rest = right.partition(" ")
        root, place = left.split(" ")[3:5]
        place = place.replace("\\040", " ")
        if kind == "cgroup2" and root == "/":
            found.setdefault(frozenset(["2"]), Hierarchy(place, _offered(place), True))
        elif kind == "cgroup" and root == "/":
            options = rest.split()[-1].split(",")
            controllers = frozenset(options) & {*WANTED, "freezer"}
            if controllers:
                found.setdefault(controllers, Hierarchy(place, controllers, False))
    return list(found.values())


def _offered(place: str) -> frozenset[str]:
    try:
        return frozenset(read_text(f"{place}/cgroup.controllers").split())
    except OSError:
        return frozenset()


def here() -> "Cgroups":
    """Return the control groups of this machine."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        return Cgroups(discover(file.read()))


class Cgroups:
    """All hierarchies; a group has the same path in each."""

    def __init__(self, hierarchies: list[Hierarchy]) -> None:
        self.unified = next((each for each in hierarchies if each.unified), None)
        wanted = set(WANTED)
        if self.unified is None:
            # Without cgroup.kill, freezing is the way to catch processes that keep forking.
            wanted.add("freezer")
        self.hierarchies = [
            each for each in hierarchies if each.unified or each.controllers & wanted
        ]

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]]) -> Self:
        """Return the hierarchies that a supervisor has sent."""
        return cls(
            [
                Hierarchy(
                    each["place"], frozenset(each["controllers"]), each["unified"], each["mount"]
                )
                for each in documents
            ]
        )

    def documents(self) -> list[dict[str, Any]]:
        """Return the hierarchies as the supervisor sends them to agents."""
        return [each.document() for each in self.hierarchies]

    def place(self, controller: str) -> Hierarchy | None:
        """Return the hierarchy of a controller."""
        fitting = [each for each in self.hierarchies if controller in each.controllers]
        return min(fitting, key=lambda each: each.unified, default=None)

    def controllers(self) -> frozenset[str]:
        """Return the controllers of all hierarchies that are used for containers."""
        found = {name for each in self.hierarchies for name in each.controllers}
        return frozenset(found & {*WANTED, "io"})

    def any_procs_file(self) -> str:
        """Return the cgroup.procs file of the root of one hierarchy."""
        return f"{self.hierarchies[0].place}/cgroup.procs"

    def group(self, path: str) -> "Cgroup":
        return Cgroup(self, path)


class Cgroup:
    """One group, in every hierarchy that is used."""

    def __init__(self, cgroups: Cgroups, path: str) -> None:
        self._cgroups = cgroups
        self.path = path

    def missing(self) -> list[str]:
        """Return the directories that do not exist yet, from the top down."""
        found: list[str] = []
        for hierarchy in self._cgroups.hierarchies:
            at = hierarchy.place
            for part in self.path.strip("/").split("/"):
                at = f"{at}/{part}"
                if not os.path.isdir(at):
                    found.append(at)
        return found

    def make(self) -> None:
        """Create the group and missing groups above it."""
        for hierarchy in self._cgroups.hierarchies:
            for left in reversed(range(_ATTEMPTS)):
                try:
                    self._make_in(hierarchy)
                    break
                except FileNotFoundError:
                    # Another cluster that is removed meanwhile removes empty groups above.
                    if not left:
                        raise

    def _make_in(self, hierarchy: Hierarchy) -> None:
        parent = os.path.dirname(self.path.rstrip("/"))
        os.makedirs(f"{hierarchy.place}/{parent.strip('/')}", exist_ok=True)
        if hierarchy.unified and len(self._cgroups.hierarchies) == 1:
            # Beside v1 hierarchies, v2 has no controllers.
            _delegate(hierarchy, parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._in(hierarchy))

    def exists(self) -> bool:
        """Return whether any hierarchy has the group."""
        return any(os.path.isdir(self._in(each)) for each in self._cgroups.hierarchies)

    def procs_files(self) -> list[str]:
        """Return the cgroup.procs files; a process that writes 0 to them moves to the group."""
        return [f"{self._in(each)}/cgroup.procs" for each in self._cgroups.hierarchies]

    def views(self) -> list[tuple[str, str]]:
        """Return the mounts for a container's /sys/fs/cgroup: names and mount options. One empty
        name means a single v2 mount."""
        first = [each for each in self._cgroups.hierarchies if not each.unified]
        if not first:
            return [("", "")]
        # Beside v1, the v2 hierarchy has no limits, and programs that see it could read limits
        # from the wrong place. Other runtimes do not show it either.
        return [
            (os.path.basename(each.mount), ",".join(sorted(each.controllers))) for each in first
        ]

    def limit(self, resources: dict[str, Any]) -> list[str]:
        """Set the limits; returns texts about limits that cannot be enforced."""
        short: list[str] = []
        for name, setter in _SETTERS:
            if all(resources.get(each) is None for each in name.split()):
                continue
            if reason := setter(self, resources):
                short.append(reason)
        return short

    def oom_kills(self) -> int:
        """Return the number of OOM kills."""
        hierarchy = self._cgroups.place("memory")
        if hierarchy is None:
            return 0
        name = "memory.events.local" if hierarchy.unified else "memory.oom_control"
        try:
            return int(_fields(read_text(f"{self._in(hierarchy)}/{name}")).get("oom_kill", "0"))
        except OSError:
            return 0

    def watch_oom(self) -> tuple[int, int] | None:
        """Return a descriptor and its epoll events that report an OOM; None if not available."""
        hierarchy = self._cgroups.place("memory")
        if hierarchy is None:
            return None
        try:
            if hierarchy.unified:
                events = os.open(f"{self._in(hierarchy)}/memory.events", os.O_RDONLY)
                os.read(events, 4096)
                return events, select.EPOLLPRI
            return _oom_eventfd(self._in(hierarchy)), select.EPOLLIN
        except OSError:
            return None

    def attach_point(self) -> str:
        """Return the v2 directory for BPF programs; empty if there is none."""
        unified = self._cgroups.unified
        return self._in(unified) if unified else ""

    def allow_devices(self, rules: list[str]) -> bool:
        """Allow only these devices, with the v1 controller; returns False if there is none."""
        hierarchy = self._cgroups.place("devices")
        if hierarchy is None or hierarchy.unified:
            return False
        write(f"{self._in(hierarchy)}/devices.deny", "a")
        for rule in rules:
            write(f"{self._in(hierarchy)}/devices.allow", rule)
        return True

    def pids(self) -> list[int]:
        """Return its processes in all hierarchies."""
        found: set[int] = set()
        for door in self.procs_files():
            with contextlib.suppress(OSError):
                found.update(map(int, read_text(door).split()))
        return sorted(found - {0})

    def kill(self) -> None:
        """Kill all processes in it; they may take a moment to be gone."""
        unified = self._cgroups.unified
        if unified is not None:
            with contextlib.suppress(OSError):
                write(f"{self._in(unified)}/cgroup.kill", "1")
        if not (left := self.pids()):
            return
        self._freeze("FROZEN")
        for pid in left + self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._freeze("THAWED")

    def remove(self) -> bool:
        """Remove it and the groups that were made inside it; False if it is still in use."""
        removed = [_remove_tree(self._in(each)) for each in self._cgroups.hierarchies]
        return all(removed)

    def _freeze(self, state: str) -> None:
        freezer = self._cgroups.place("freezer")
        if freezer is not None and not freezer.unified:
            with contextlib.suppress(OSError):
                write(f"{self._in(freezer)}/freezer.state", state)

    def _in(self, hierarchy: Hierarchy) -> str:
        return hierarchy.place + "/" + self.path.strip("/")

    def _file(self, controller: str) -> tuple[str, bool] | None:
        """Return the directory of a controller, and whether it is v2."""
        hierarchy = self._cgroups.place(controller)
        return None if hierarchy is None else (self._in(hierarchy), hierarchy.unified)

    def _set_memory(self, resources: dict[str, Any]) -> str:
        at = self._file("memory")
        if at is None:
            return "the memory limit is not enforced: there is no memory controller"
        directory, unified = at
        limit = int(resources["memory_limit"])
        if unified:
            write(f"{directory}/memory.max", _or_max(limit))
            with contextlib.suppress(OSError):
                write(f"{directory}/memory.swap.max", "max" if limit == _UNLIMITED else "0")
            with contextlib.suppress(OSError):
                # An OOM kills all processes of the container, as the kubelet configures it.
                write(f"{directory}/memory.oom.group", "1")
        else:
            _set_memory_and_swap(directory, limit)
        return ""

    def _set_quota(self, resources: dict[str, Any]) -> str:
        at = self._file("cpu")
        if at is None:
            return "the cpu limit is not enforced: there is no cpu controller"
        directory, unified = at
        quota, period = int(resources["cpu_quota"]), int(resources.get("cpu_period", 100_000))
        if unified:
            write(f"{directory}/cpu.max", f"{_or_max(quota)} {period}")
        else:
            write(f"{directory}/cpu.cfs_period_us", str(period))
            write(f"{directory}/cpu.cfs_quota_us", str(quota))
        return ""

    def _set_shares(self, resources: dict[str, Any]) -> str:
        at = self._file("cpu")
        if at is not None:
            directory, unified = at
            shares = int(resources["cpu_shares"])
            if unified:
                write(f"{directory}/cpu.weight", str(weight(shares)))
            else:
                write(f"{directory}/cpu.shares", str(min(max(shares, 2), _MOST_SHARES)))
        # Shares are a request, not a limit: a missing controller is not reported.
        return ""

    def _set_pids(self, resources: dict[str, Any]) -> str:
        at = self._file("pids")
        if at is None:
            return "the limit on processes is not enforced: there is no pids controller"
        write(f"{at[0]}/pids.max", _or_max(int(resources["pids_limit"])))
        return ""

    def _set_hugepages(self, resources: dict[str, Any]) -> str:
        at = self._file("hugetlb")
        for size, limit in resources["hugepages"].items():
            name = "max" if at and at[1] else "limit_in_bytes"
            if at is None or not os.path.exists(f"{at[0]}/hugetlb.{size}.{name}"):
                return f"the limit on huge pages of {size} is not enforced: there is no controller"
            write(f"{at[0]}/hugetlb.{size}.{name}", str(limit))
        return ""


_SETTERS: Final = (
    ("memory_limit", Cgroup._set_memory),
    ("cpu_quota", Cgroup._set_quota),
    ("cpu_shares", Cgroup._set_shares),
    ("pids_limit", Cgroup._set_pids),
    ("hugepages", Cgroup._set_hugepages),
)


def weight(shares: int) -> int:
    """Convert v1 shares to a v2 weight; 1024 becomes 100, the default. The formula is runc's."""
    if shares <= 2:
        return 1
    if shares >= _MOST_SHARES:
        return _MOST_WEIGHT
    size = math.log2(shares)
    return math.ceil(10 ** ((size * size + 125 * size) / 612 - 7 / 34))


def write(path: str, text: str) -> None:
    """Write in one call: a buffered file would lose the kernel's error."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"write {text} to {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def read_text(path: str) -> str:
    """Return the text of one of the kernel's files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 20).decode()
    finally:
        os.close(descriptor)


def _fields(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition(" ") for line in text.splitlines())}


def _or_max(limit: int) -> str:
    return "max" if limit == _UNLIMITED else str(limit)


def _delegate(hierarchy: Hierarchy, path: str) -> None:
    """Enable the controllers for groups below a path, in every group above it."""
    at = hierarchy.place
    for part in ["", *path.strip("/").split("/")]:
        at = f"{at}/{part}" if part else at
        # A controller that cannot be enabled is noticed by its missing files.
        enable(at, hierarchy.controllers & DELEGATED)


def enable(place: str, controllers: frozenset[str]) -> frozenset[str]:
    """Enable v2 controllers for the groups below one; return those of them that are enabled."""
    path = f"{place}/cgroup.subtree_control"
    enabled = controllers.intersection(read_text(path).split())
    for each in controllers - enabled:
        with contextlib.suppress(OSError):
            write(path, f"+{each}")
            enabled |= {each}
    return enabled


def _set_memory_and_swap(directory: str, limit: int) -> None:
    """Set the limits of memory and of memory with swap, which may never be the smaller one."""
    memory, both = (f"{directory}/memory.{name}limit_in_bytes" for name in ("", "memsw."))
    order = [memory, both]
    if limit == _UNLIMITED or limit > int(read_text(memory)):
        order.reverse()
    for path in order:
        if path == memory or os.path.exists(path):
            write(path, str(limit))


def _oom_eventfd(directory: str) -> int:
    notice = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        control = os.open(f"{directory}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            write(f"{directory}/cgroup.event_control", f"{notice} {control}")
        finally:
            os.close(control)
    except OSError:
        os.close(notice)
        raise
    return notice


def _remove_tree(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            return False
    else:
        return True
    try:
        inside = [each.path for each in os.scandir(directory) if each.is_dir(follow_symlinks=False)]
        removed = [_remove_tree(each) for each in inside]
        if not removed or not all(removed):
            return False
        os.rmdir(directory)
    except OSError:
        return False
    return True
