"""Removes control groups that a runtime leaves behind in hierarchies that kedge does not use.

With version 1 of control groups, runc makes the group of a pod in every hierarchy of the machine,
and removes only the groups of containers in it, or not even those if it fails to make a container.
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path


def remove(parent: str, managed: Collection[str]) -> None:
    """Remove a pod's empty groups, with empty groups below and above, but not in managed
    hierarchies."""
    if not parent.strip("/"):
        return
    for place in hierarchies(Path("/proc/self/mountinfo").read_text()):
        if place in managed:
            continue
        path = parent.rstrip("/")
        for group, _, _ in os.walk(f"{place}{path}", topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(group)
        while path.strip("/"):
            try:
                os.rmdir(f"{place}{path}")
            except FileNotFoundError:
                pass
            except OSError:
                break
            path = os.path.dirname(path)


def hierarchies(mounts: str) -> Iterator[str]:
    """Yield the places of mounted hierarchies."""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        with contextlib.suppress(IndexError):
            if rest.split()[0] in ("cgroup", "cgroup2"):
                yield fields.split()[4]
