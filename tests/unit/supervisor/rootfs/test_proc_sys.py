import os
from pathlib import Path

import pytest
from tests.unit.supervisor.conftest import Apart

from kedge.supervisor.kernel import devices, libc
from kedge.supervisor.rootfs import proc_sys
from kedge.supervisor.rootfs.options import RootfsOptions
from kedge.supervisor.rootfs.volumes import UnsafeMount


def options(place: Path, proc: tuple[int, str] = (-1, "")) -> RootfsOptions:
    return RootfsOptions(
        home="/none",
        mount_point=str(place),
        rootless=False,
        cgroup_views=[],
        shm=-1,
        any_device=True,
        proc=proc,
    )


def test_masked_paths_are_empty_and_settings_read_only(apart: Apart, tmp_path: Path) -> None:
    def test() -> None:
        root = os.open(tmp_path, os.O_PATH)
        proc_sys.mount(root, options(tmp_path), -1, privileged=False)
        proc_sys.mask(root, devices.null())
        assert (tmp_path / "proc/keys").read_bytes() == b""
        with pytest.raises(OSError, match="Read-only"):
            (tmp_path / "proc/sys/kernel/domainname").write_text("x")
        assert not any((tmp_path / "sys/firmware").iterdir())

    apart(test)


def test_the_proc_of_another_container_must_be_one(apart: Apart, tmp_path: Path) -> None:
    def test() -> None:
        libc.mount("tmpfs", str(tmp_path), "tmpfs")
        namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        for path in (str(tmp_path), "/proc/self"):
            with pytest.raises((UnsafeMount, OSError)):
                proc_sys.open_shared_proc(options(tmp_path, (namespace, path)))
        assert libc.is_proc(proc_sys.open_shared_proc(options(tmp_path, (namespace, "/proc"))))

    apart(test)


def test_a_container_with_its_own_pids_shares_no_proc(tmp_path: Path) -> None:
    assert proc_sys.open_shared_proc(options(tmp_path)) == -1
