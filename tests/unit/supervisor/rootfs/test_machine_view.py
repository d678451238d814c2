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
