import os
from pathlib import Path

import pytest

from kedge.supervisor.kernel import inode_flags


def test_flags_are_set_and_cleared(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    try:
        is_changed = inode_flags.open_and_change(str(path), None, on=inode_flags.APPEND_ONLY)
    except OSError:
        pytest.skip("this file system or user has no such flags")
    assert is_changed
    assert not inode_flags.open_and_change(str(path), None, on=inode_flags.APPEND_ONLY)
    with pytest.raises(PermissionError):
        path.write_text("anew")
    assert inode_flags.open_and_change(str(path), None, off=inode_flags.APPEND_ONLY)
    path.write_text("anew")


def test_links_are_not_followed_and_fifos_do_not_block(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(OSError, match=name if name == "link" else "ioctl"):
            inode_flags.open_and_change(str(tmp_path / name), None, on=inode_flags.IMMUTABLE)
