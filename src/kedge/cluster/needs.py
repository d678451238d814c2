"""Decides whether a machine meets the needs of a test."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from kedge.cluster.errors import ClusterError

LEVELS: Final = ("plain", "userns", "full")
"""The isolation levels of containers, the weakest first."""
DOCTOR: Final = (sys.executable, "-P", "-m", "kedge", "doctor", "--output=json")


class MachineNeeds(NamedTuple):
    """The needs of a test, as its marker `kedge` says."""

    root: bool = False
    level: str = ""
    settings: Mapping[str, Any] = {}
    """The settings of its own cluster."""

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """Return the needs that the keywords of a marker say; raises ClusterError."""
        settings = dict(keywords)
        root, level = settings.pop("root", False), settings.pop("level", "")
        if level and level not in LEVELS:
            raise ClusterError(f'there is no level "{level}": the levels are {", ".join(LEVELS)}')
        return cls(bool(root), level, settings)


def lack(needs: MachineNeeds, user: int, level: Callable[[], str]) -> str:
    """Return the thing that the machine lacks; empty if it lacks nothing."""
    if needs.root and user != 0:
        return f"needs root, and the tests run as user {user}"
    if needs.level and LEVELS.index(needs.level) > LEVELS.index(found := level()):
        return f'needs the level "{needs.level}", and this machine has "{found}": see kedge doctor'
    return ""


@cache
def machine_level() -> str:
    """Return the level of this machine, as `kedge doctor` finds it.

    In a process of its own: doctor forks to try what the kernel allows, and a test process may
    have threads.
    """
    done = subprocess.run(DOCTOR, capture_output=True, text=True, check=False)
    try:
        return str(json.loads(done.stdout)["level"])
    except (ValueError, KeyError) as error:
        raise ClusterError(f"kedge doctor failed: {done.stderr or done.stdout}") from error


def existing_kubeconfig(given: str, environment: Mapping[str, str]) -> Path:
    """Return the kubeconfig of `--kedge-existing`; raises ClusterError if there is none."""
    listed = given or environment.get("KUBECONFIG", "")
    path = Path(listed.partition(":")[0] if listed else "~/.kube/config").expanduser()
    if not path.exists():
        raise ClusterError(f"--kedge-existing: {path} does not exist")
    return path
