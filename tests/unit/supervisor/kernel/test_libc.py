import errno
import os
from pathlib import Path

import pytest

from kedge.supervisor.kernel import libc


def test_errors_name_the_call(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(OSError, match=f"unmount {missing}: No such file or directory") as caught:
        libc.unmount(missing)
    assert caught.value.errno in (errno.ENOENT, errno.EPERM)


def test_a_path_is_resolved_with_the_directory_as_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        found = libc.open_in(root, "/link/../../etc", os.O_PATH)
        assert os.readlink(f"/proc/self/fd/{found}") == str(tmp_path / "etc")
        os.close(found)
        with pytest.raises(OSError, match="Invalid cross-device link"):
            libc.open_at(root, "../x", os.O_PATH, libc.BENEATH)
    finally:
        os.close(root)


def test_a_rename_meanwhile_is_retried_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = 0

    def busy(*_: object) -> int:
        nonlocal tries
        tries += 1
        raise BlockingIOError(errno.EAGAIN, "try again")

    monkeypatch.setattr(libc, "_syscall", busy)
    with pytest.raises(BlockingIOError):
        libc.open_at(0, "x", os.O_PATH, libc.BENEATH)
    assert tries == 64


def test_a_procfs_is_told_from_others(tmp_path: Path) -> None:
    for path, expected in (("/proc", True), (str(tmp_path), False)):
        descriptor = os.open(path, os.O_PATH)
        assert libc.is_proc(descriptor) is expected
        os.close(descriptor)


def test_capabilities_are_those_of_proc() -> None:
    with open("/proc/self/status") as file:
        shown = next(line.split()[1] for line in file if line.startswith("CapEff"))
    assert libc.capabilities() == int(shown, 16)


def test_a_call_that_is_not_known_for_the_machine_is_an_error() -> None:
    with pytest.raises(OSError, match="not known for") as caught:
        libc._old("no_such_call")
    assert caught.value.errno == errno.ENOSYS
