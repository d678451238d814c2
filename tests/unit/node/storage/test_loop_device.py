"""Loop devices that change hands."""

from pathlib import Path

import pytest

from kedge.node.storage import loop_device


def test_a_device_that_another_file_has_got_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, device = tmp_path / "image", tmp_path / "loop0"
    for each in (image, device):
        each.touch()
    answers = iter([str(device), ""] * 2)
    monkeypatch.setattr(loop_device, "attached", lambda file: next(answers))
    monkeypatch.setattr(loop_device, "_free", lambda: "-of-nobody")
    with pytest.raises(FileNotFoundError, match="/dev/loop-of-nobody"):
        loop_device.attach(image, is_kept=False)
    # Were the device of another file cleared, the kernel would refuse: it is a plain file.
    loop_device.detach(image)
