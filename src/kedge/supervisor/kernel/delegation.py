"""Control groups that this process may use: those of root, or a subtree that was delegated.

A delegated subtree is one whose directories belong to an ordinary user: of a systemd user session,
of a service or scope with `Delegate=yes`, or one that root has made and given away. Groups are made
below the nearest such group above this process, so that the limits above it hold for containers.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kedge.supervisor.kernel import cgroups
from kedge.supervisor.kernel.cgroups import DELEGATED, Cgroups, Hierarchy, enable, read_text

_FOR_ROOT_ONLY: Final = frozenset({"devices"})
"""v1 controllers whose files the kernel lets only root write, also in a delegated group."""


class DelegatedGroup(NamedTuple):
    """A group below which this process may make others."""

    place: str
    controllers: frozenset[str]
    """Those that it could enable for groups below it."""
    is_empty: bool
    """Whether no process is in the group itself, but for those in groups below it."""


def here() -> Cgroups:
    """Return the control groups of this machine that this process may use."""
    with open("/proc/self/cgroup") as file:
        return usable(cgroups.here(), file.read(), is_root=os.geteuid() == 0)


def usable(machine: Cgroups, own: str, *, is_root: bool) -> Cgroups:
    """Return the hierarchies in which this process may make groups. `own` is the text of its
    /proc/self/cgroup."""
    is_single = len(machine.hierarchies) == 1
    found = []
    for each in machine.hierarchies:
        wanted = each.controllers if is_root else each.controllers - _FOR_ROOT_ONLY
        if not wanted and not each.unified:
            continue
        paths = [""] if is_root else above(own_path(own, each))
        candidates = [*_writable(each, paths)]
        needs_empty = is_single and each.unified and not is_root
        chosen = choose(candidates, needs_empty=needs_empty)
        if chosen is None:
            continue
        if each.unified:
            # In v2 the groups below have only the controllers that this one enables. Beside v1, it
            # can still kill groups and count processor time.
            wanted = enable(chosen.place, wanted & DELEGATED) if is_single else frozenset()
        found.append(Hierarchy(chosen.place, wanted, each.unified, each.mount))
    return Cgroups(found)


def choose(candidates: Sequence[DelegatedGroup], *, needs_empty: bool) -> DelegatedGroup | None:
    """Return the group with most controllers, of several the nearest, which comes first. In v2 only
    a group without processes of its own can enable controllers."""
    fitting = [each for each in candidates if each.is_empty or not needs_empty]
    return max(fitting, key=lambda each: len(each.controllers & DELEGATED), default=None)


def own_path(own: str, hierarchy: Hierarchy) -> str:
    """Return the path of this process's group in a hierarchy; "/" if it is unknown."""
    for line in own.splitlines():
        number, names, path = line.split(":", 2)
        if hierarchy.unified:
            if number == "0" and not names:
                return path
        elif hierarchy.controllers & set(names.split(",")):
            return path
    return "/"


def above(path: str) -> list[str]:
    """Return the path and those above it, the nearest first; the root is empty."""
    parts = [part for part in path.split("/") if part]
    if ".." in parts:
        # The group is outside of this process's cgroup namespace.
        return [""]
    return ["".join(f"/{part}" for part in parts[:length]) for length in range(len(parts), -1, -1)]


def _writable(hierarchy: Hierarchy, paths: Sequence[str]) -> Iterator[DelegatedGroup]:
    for path in paths:
        place = f"{hierarchy.mount}{path}"
        if not all(os.access(each, os.W_OK) for each in (place, f"{place}/cgroup.procs")):
            continue
        controllers, is_empty = hierarchy.controllers, False
        if hierarchy.unified:
            controllers = frozenset(read_text(f"{place}/cgroup.controllers").split())
            is_empty = not read_text(f"{place}/cgroup.procs").strip()
        yield DelegatedGroup(place, controllers, is_empty)
