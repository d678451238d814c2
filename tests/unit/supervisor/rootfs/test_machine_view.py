import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.supervisor.conftest import Apart

from kedge.supervisor.rootfs import machine_view, mounts, overlay
from kedge.supervisor.rootfs.options import RootfsOptions


def options(tmp_path: Path, *, rootless: bool) -> RootfsOptions:
    for name in ("home/upper", "home/work", "root"):
        (tmp_path / name).mkdir(parents=True)
    return RootfsOptions(
        home=str(tmp_path / "home"),
        mount_point=str(tmp_path / "root"),
        rootless=rootless,
        cgroup_views=[],
        shm=-1,
        any_device=True,
        proc=(-1, ""),
    )


@pytest.mark.parametrize("rootless", [False, True])
def test_concealed_directories_are_empty_but_for_what_is_shown(
    apart: Apart, tmp_path: Path, rootless: bool
) -> None:
    concealed = Path("/opt/kedge-test-concealed")
    spec: Any = {"concealed": [str(concealed)], "shown": [str(concealed / "shown")]}
    given = options(tmp_path, rootless=rootless)

    def test() -> None:
        # A tmpfs on /opt, in this namespace only: nothing is left on the machine.
        mounts.mount_kernel_filesystem(os.open("/", os.O_PATH), "/opt", "tmpfs", 0)
        (concealed / "shown").mkdir(parents=True)
        (concealed / "secret").touch()
        (concealed / "shown" / "file").touch()
        machine_view.mount(spec, given, print)
        seen = tmp_path / "root" / concealed.relative_to("/")
        assert not (seen / "secret").exists()
        assert (tmp_path / "root" / "usr").is_dir()

    apart(test)


def test_expected_directories_are_writable_for_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, upper = tmp_path / "source", tmp_path / "upper"
    for name in ("source/local/lib", "source/other/deep", "upper"):
        (tmp_path / name).mkdir(parents=True)
    (source / "local" / "bin").symlink_to("lib")
    (source / "local" / "lib").chmod(0o750)
    (source / "local" / "file").touch()
    elsewhere = tmp_path / "elsewhere"
    expected = tuple(str(each)[1:] for each in (source / "local", elsewhere))
    monkeypatch.setattr(machine_view, "_WRITABLE", expected)
    machine_view._make_writable(str(source), str(upper))
    made = sorted(str(each.relative_to(upper)) for each in upper.rglob("*"))
    assert made == ["local", "local/lib"]
    assert (upper / "local/lib").stat().st_mode & 0o777 == 0o750


def test_a_directory_that_cannot_be_overlaid_is_mounted_by_its_entries(
    apart: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("source/inner", "source/secret", "target"):
        (tmp_path / name).mkdir(parents=True)
    (source / "inner" / "file").write_text("inner")
    (source / "secret" / "key").touch()
    (source / "file").write_text("file")
    (source / "link").symlink_to("file")
    mount = overlay.mount

    def some(lowers: list[str], *rest: Any, **more: Any) -> None:
        if lowers == [str(source)]:
            raise OSError(22, "Invalid argument")
        mount(lowers, *rest, **more)

    monkeypatch.setattr(overlay, "mount", some)

    def test() -> None:
        mounts.mount_kernel_filesystem(os.open("/", os.O_PATH), str(target), "tmpfs", 0)
        home, secret = str(tmp_path / "home"), str(source / "secret")
        machine_view._mount_part(str(source), home, str(target), [secret], overlay.USER_XATTR, -1)
        assert (target / "file").read_text() == (target / "link").read_text() == "file"
        assert (target / "inner" / "file").read_text() == "inner"
        assert list((target / "secret").iterdir()) == []
        (target / "new").touch()
        (target / "inner" / "new").touch()
        assert not (source / "inner" / "new").exists()
        with pytest.raises(OSError, match="Read-only"):
            (target / "file").write_text("changed")

    apart(test)


def test_a_directory_that_cannot_be_overlaid_is_read_only(
    apart: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(overlay, "mount", refused)
    for name in ("source", "source/secret", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "source/secret/key").touch()

    def test() -> None:
        source, target = str(tmp_path / "source"), str(tmp_path / "target")
        secret = str(tmp_path / "source/secret")
        machine_view._mount_part(source, str(tmp_path / "home"), target, [secret], "", -1)
        assert list((tmp_path / "target/secret").iterdir()) == []
        with pytest.raises(OSError, match="Read-only"):
            (tmp_path / "target/new").touch()

    apart(test)
