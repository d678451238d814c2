from typing import Any

import pytest

from kedge.supervisor.kernel import devices, libc
from kedge.supervisor.rootfs import (
    dev,
    inside,
    machine_view,
    mounts,
    overlay,
    proc_sys,
    rootfs,
    volumes,
)

SPEC: Any = {
    "lowers": ["/layer"],
    "hidden": [],
    "binds": [{"target": "/data/inner"}, {"target": "/data"}],
    "devices": [],
    "directory": "/",
    "terminal": True,
    "masked": True,
    "privileged": False,
    "read_only": True,
}


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps of a build, without their effects."""
    found: list[str] = []

    def step(module: object, name: str, what: str = "", result: int = 3) -> None:
        def done(*arguments: Any, **_: object) -> int:
            target = next(
                (each.get("target", "") for each in arguments if isinstance(each, dict)), ""
            )
            found.append(f"{what or name} {target}".strip())
            return result

        monkeypatch.setattr(module, name, done)

    step(dev, "open_shared_memory", "open shm")
    step(proc_sys, "open_shared_proc", "open proc")
    step(libc, "unshare")
    step(devices, "null", "open null")
    step(volumes, "open_tree", "open volume")
    step(libc, "mount", "make private")
    step(overlay, "mount_layers", "layers")
    step(machine_view, "mount", "machine")
    step(mounts, "own_new_files")
    step(proc_sys, "mount", "proc and sys")
    monkeypatch.setattr(dev, "mount", lambda *_: found.append("dev"))
    step(dev, "open_terminal", "terminal", 9)
    step(proc_sys, "mask", "mask")
    step(inside, "plain_directory", "find proc")
    step(volumes, "attach", "attach")
    step(inside, "directory", "working directory")
    step(libc, "set_mount", "read-only")
    monkeypatch.setattr(rootfs.os, "open", lambda *_: 3)  # type: ignore[attr-defined]
    monkeypatch.setattr(rootfs.os, "fchdir", lambda *_: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(rootfs, "_enter", lambda: found.append("pivot"))
    return found


def test_everything_of_the_machine_is_opened_before_and_masks_come_before_volumes(
    order: list[str],
) -> None:
    options: Any = type("Options", (), {"any_device": True, "userns": -1, "first_id": 0})
    options.mount_point = "/none"
    assert rootfs.build(SPEC, options, print) == 9
    assert order == [
        *("open shm", "open proc", "unshare", "open null"),
        *("open volume /data", "open volume /data/inner", "make private"),
        *("layers", "own_new_files", "proc and sys", "dev", "terminal", "mask", "find proc"),
        *("attach /data", "attach /data/inner", "working directory", "pivot", "read-only"),
    ]


def test_a_container_without_an_image_sees_the_machine(order: list[str]) -> None:
    options: Any = type("Options", (), {"any_device": True, "userns": -1, "first_id": 0})
    options.mount_point = "/none"
    spec: Any = {**SPEC, "lowers": [], "binds": [], "terminal": False, "read_only": False}
    assert rootfs.build(spec, options, print) == -1
    assert "machine" in order
    assert "layers" not in order


def test_a_privileged_container_has_no_masks(order: list[str]) -> None:
    options: Any = type("Options", (), {"any_device": True, "userns": -1, "first_id": 0})
    options.mount_point = "/none"
    spec: Any = {**SPEC, "privileged": True}
    rootfs.build(spec, options, print)
    assert "mask" not in order
