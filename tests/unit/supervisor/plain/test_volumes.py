import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.supervisor.plain import volumes
from kedge.supervisor.spec import BindMount


def bind(source: Path, target: str, part: str = "") -> BindMount:
    return BindMount(
        source=str(source),
        part=part,
        target=target,
        read_only=False,
        recursive=False,
        propagation="None",
    )


@pytest.fixture
def number() -> Iterator[int]:
    """The number of a descriptor that the test opens."""
    free = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 700)
    os.close(free)
    yield free
    with contextlib.suppress(OSError):
        os.close(free)


def test_a_volume_is_open_under_its_number(tmp_path: Path, number: int) -> None:
    (tmp_path / "key").write_text("value")
    volumes.hold([bind(tmp_path, "/data"), bind(tmp_path, "/other")], {"/data": number})
    assert Path(f"/proc/self/fd/{number}/key").read_text() == "value"
    assert os.get_inheritable(number)


def test_a_part_of_a_volume_is_looked_up_inside_of_it(tmp_path: Path, number: int) -> None:
    (tmp_path / "volume" / "part").mkdir(parents=True)
    (tmp_path / "volume" / "out").symlink_to(tmp_path)
    volumes.hold([bind(tmp_path / "volume", "/data", "part")], {"/data": number})
    assert os.path.samefile(f"/proc/self/fd/{number}", tmp_path / "volume" / "part")
    with pytest.raises(OSError, match=r'failed to mount ".*/volume" at "/data": invalid cross'):
        volumes.hold([bind(tmp_path / "volume", "/data", "out")], {"/data": number})


def test_a_missing_volume_is_an_error(tmp_path: Path, number: int) -> None:
    with pytest.raises(OSError, match="no such file or directory"):
        volumes.hold([bind(tmp_path / "none", "/data")], {"/data": number})
