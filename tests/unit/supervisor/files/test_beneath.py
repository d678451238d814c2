import errno
import fcntl
import os
import signal
import socket
from pathlib import Path

import pytest

from kedge.supervisor.files import beneath
from kedge.supervisor.kernel import libc


@pytest.fixture(params=["openat2", "steps"])
def volume(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "steps":

        def missing(*_: object) -> int:
            raise OSError(errno.ENOSYS, "openat2")

        monkeypatch.setattr(libc, "open_at", missing)
    made = tmp_path / "volume"
    made.mkdir()
    (tmp_path / "secret").write_text("secret")
    return made


def read(volume: Path, path: str) -> bytes:
    with beneath.directory(volume) as top, beneath.regular(top, path) as file:
        return beneath.beginning(file, 10)


def test_a_file_is_read_up_to_a_limit(volume: Path) -> None:
    (volume / "in").mkdir()
    (volume / "in" / "file").write_text("0123456789abcdef")
    assert read(volume, "in/file") == read(volume, "/in//./file") == b"0123456789"
    with beneath.directory(volume) as top, beneath.regular(top, "in/file") as file:
        assert beneath.ending(file, 4) == b"cdef"
        assert beneath.ending(file, 100) == b"0123456789abcdef"


@pytest.mark.parametrize("path", ["../secret", "in/../../secret", "up", "in/up", "root", "proc"])
def test_no_path_and_no_link_leads_out(volume: Path, path: str) -> None:
    (volume / "in").mkdir()
    (volume / "up").symlink_to("../secret")
    (volume / "in" / "up").symlink_to("../../secret")
    (volume / "root").symlink_to(volume.parent / "secret")
    (volume / "proc").symlink_to(f"/proc/self/cwd{volume.parent}/secret")
    with pytest.raises(OSError, match=r"Invalid cross-device link|Too many levels"):
        read(volume, path)


def test_a_link_that_stays_inside_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("../file")
    assert read(tmp_path, "in/link") == b"x"


def test_only_regular_files_are_opened(volume: Path) -> None:
    os.mkfifo(volume / "fifo")
    (volume / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(volume / "socket"))
    for name in ("fifo", "directory", "socket"):
        with pytest.raises(beneath.NotRegular):
            read(volume, name)
    with pytest.raises(FileNotFoundError):
        read(volume, "missing")


@pytest.mark.skipif(os.geteuid() != 0, reason="devices are made by root")
def test_a_device_is_not_opened(volume: Path) -> None:
    os.mknod(volume / "zero", 0o20666, os.makedev(1, 5))
    with pytest.raises(beneath.NotRegular):
        read(volume, "zero")


def test_a_lease_does_not_make_us_wait(volume: Path) -> None:
    (volume / "file").write_text("x")
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    held = os.open(volume / "file", os.O_WRONLY)
    try:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(BlockingIOError):
            read(volume, "file")
    finally:
        os.close(held)
        signal.signal(signal.SIGIO, before)
