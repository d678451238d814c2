"""Options of mounts, and the first use of a file system."""

import os
import stat
from pathlib import Path

import pytest

from kedge.node.storage.volume_image import mount_flags, open_new
from kedge.supervisor.kernel import libc


@pytest.mark.parametrize(
    ("options", "flags", "data"),
    [
        ((), 0, []),
        (("ro", "noexec"), libc.MS_RDONLY | libc.MS_NOEXEC, []),
        (("noatime,data=journal",), 0x400, ["data=journal"]),
        (("defaults", "rw"), 0, []),
    ],
)
def test_options_become_flags_and_data(
    options: tuple[str, ...], flags: int, data: list[str]
) -> None:
    assert mount_flags(options) == (flags, data)


@pytest.mark.skipif(os.geteuid() != 0, reason="mkfs makes file systems of root")
def test_only_a_new_file_system_is_opened_for_all_users(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    tmp_path.chmod(0o755)
    open_new(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o777
    assert list(tmp_path.iterdir()) == []
    # A container chose another mode.
    tmp_path.chmod(0o755)
    open_new(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
