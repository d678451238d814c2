import os
from pathlib import Path
from typing import Any

from kedge.supervisor.host import RuntimeHost
from kedge.supervisor.kernel.cgroups import Cgroups
from kedge.supervisor.machine_capabilities import USERNS, of_level

NONE: Any = None
MACHINE, NO_GROUPS = of_level(USERNS), Cgroups([])


def test_pids_are_the_machines_without_a_user_namespace(tmp_path: Path) -> None:
    host = RuntimeHost(
        NONE,
        NONE,
        root=str(tmp_path / "root"),
        outer=-1,
        capabilities=of_level(USERNS),
        groups=Cgroups([]),
    )
    assert (tmp_path / "root").is_dir()
    assert (host.own_pid(), host.outer_pid(12, -1)) == (os.getpid(), 12)
    assert host.cgroups is None
    assert not host.rootless


def test_pids_of_a_rootless_supervisor_are_looked_up_outside(tmp_path: Path) -> None:
    outer = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    process = os.pidfd_open(os.getpid())
    try:
        host = RuntimeHost(
            NONE,
            NONE,
            root=str(tmp_path),
            outer=outer,
            capabilities=of_level(USERNS),
            groups=Cgroups([]),
        )
        assert host.rootless
        assert host.own_pid() == os.getpid()
        assert host.outer_pid(1, process) == os.getpid()
    finally:
        os.close(process)
        os.close(outer)
