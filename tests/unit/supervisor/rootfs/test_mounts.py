import os
from pathlib import Path

import pytest
from tests.unit.supervisor.conftest import Apart

from kedge.supervisor.kernel import devices
from kedge.supervisor.rootfs import mounts


def test_a_hidden_directory_is_empty_and_a_hidden_file_is_the_null_device(
    apart: Apart, tmp_path: Path
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "secret").touch()
    (tmp_path / "file").write_text("secret")

    def test() -> None:
        root, null = os.open(tmp_path, os.O_PATH), devices.null()
        for path in ("/directory", "/file", "/none"):
            mounts.hide(root, path, null)
        assert list((tmp_path / "directory").iterdir()) == []
        assert (tmp_path / "file").read_text() == ""
        with pytest.raises(OSError, match="Read-only"):
            (tmp_path / "directory" / "new").touch()
        with pytest.raises(OSError, match="Read-only"):
            (tmp_path / "file").chmod(0)

    apart(test)
    assert (tmp_path / "file").read_text() == "secret"


def test_a_kernel_file_system_is_not_mounted_behind_a_link(apart: Apart, tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to("elsewhere")

    def test() -> None:
        root = os.open(tmp_path, os.O_PATH)
        with pytest.raises(OSError, match="of the image is not a directory"):
            mounts.mount_kernel_filesystem(root, "/proc", "proc", mounts.SAFE)
        mounts.mount_kernel_filesystem(root, "/sys", "tmpfs", mounts.SAFE)
        assert (tmp_path / "sys").is_mount()

    apart(test)


def test_a_read_only_bind_mount_cannot_be_written(apart: Apart, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()

    def test() -> None:
        mounts.bind_read_only(str(source), os.open(target, os.O_PATH), -1)
        (source / "file").touch()
        assert (target / "file").exists()
        with pytest.raises(OSError, match="Read-only"):
            (target / "other").touch()

    apart(test)
