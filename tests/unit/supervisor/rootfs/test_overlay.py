import os
from pathlib import Path

import pytest
from tests.unit.supervisor.conftest import Apart

from kedge.supervisor.rootfs import overlay
from kedge.supervisor.rootfs.options import RootfsOptions


def options(tmp_path: Path, *, rootless: bool = False, userns: int = -1) -> RootfsOptions:
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
        userns=userns,
    )


def layers(tmp_path: Path) -> list[str]:
    """Two layers, the uppermost first, with names that need escaping."""
    made = []
    for name, text in (("up,per", "new"), ("lo:wer", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(text)
        made.append(str(tmp_path / name))
    return made


def test_the_uppermost_layer_wins_and_writes_go_to_the_home(apart: Apart, tmp_path: Path) -> None:
    lowers, given = layers(tmp_path), options(tmp_path)

    def test() -> None:
        overlay.mount_layers(lowers, given, print)
        assert (tmp_path / "root" / "file").read_text() == "new"
        (tmp_path / "root" / "file").write_text("mine")
        assert Path(lowers[0], "file").read_text() == "new"

    apart(test)


def test_devices_of_an_image_do_not_work(apart: Apart, tmp_path: Path) -> None:
    lowers, given = layers(tmp_path), options(tmp_path)

    def test() -> None:
        overlay.mount_layers(lowers, given, print)
        os.mknod(tmp_path / "root" / "null", 0o20666, os.makedev(1, 3))
        with pytest.raises(PermissionError):
            (tmp_path / "root" / "null").read_bytes()

    apart(test)


def test_without_overlays_the_layers_are_copied(
    apart: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(overlay, "mount", refused)
    lowers, given = layers(tmp_path), options(tmp_path, rootless=True)

    def test() -> None:
        overlay.mount_layers(lowers, given, print)
        assert (tmp_path / "root" / "file").read_text() == "new"

    apart(test)


def test_a_pod_with_users_of_its_own_gets_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(overlay, "mount", refused)
    with pytest.raises(PermissionError):
        overlay.mount_layers(layers(tmp_path), options(tmp_path, userns=9), print)


def test_a_root_that_cannot_be_on_disk_is_kept_in_memory(
    apart: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, homes = overlay.mount, []

    def first_refused(lowers: list[str], home: str, *rest: object, **named: object) -> None:
        homes.append(home)
        if len(homes) == 1:
            raise OSError(22, "Invalid argument")
        real(lowers, home, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(overlay, "mount", first_refused)
    lowers, given = layers(tmp_path), options(tmp_path)

    def test() -> None:
        notes: list[str] = []
        overlay.mount_layers(lowers, given, notes.append)
        assert notes == ["what the container writes to its root is kept in memory"]
        assert homes[1] == f"{given.home}/upper"

    apart(test)
