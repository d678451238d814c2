"""What the machine's own files say."""

from pathlib import Path

import pytest

from kedge.node.host import machine
from kedge.node.host.machine import FileSystemSpace

GIB = 1 << 30


def test_amounts_of_memory_are_in_bytes() -> None:
    text = "MemTotal:        2048 kB\nSwapTotal:          0 kB\nHugePages_Total:   3\n"
    assert machine.meminfo(text) == {"MemTotal": 2097152, "SwapTotal": 0, "HugePages_Total": 3}


def test_operating_system_is_called_as_people_call_it() -> None:
    assert machine.os_name('ID=debian\nPRETTY_NAME="Debian 12"\n') == "Debian 12"
    assert machine.os_name("") == "Linux"


def test_what_a_machine_lacks_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8 kB\n")
    pages = tmp_path / "sys/kernel/mm/hugepages"
    for size, number in ((2048, "4\n"), (1048576, "1\n"), (64, "9\n")):
        (pages / f"hugepages-{size}kB").mkdir(parents=True)
        (pages / f"hugepages-{size}kB/nr_hugepages").write_text(number)
    found = machine.read(tmp_path, tmp_path)
    assert (found.memory, found.machine_id) == (8192, "")
    assert found.hugepages == {"2Mi": 8 * 2**20, "1Gi": 2**30}


def test_this_machine_is_described(tmp_path: Path) -> None:
    found = machine.read(tmp_path)
    assert found.cpus > 0
    assert found.memory > 2**20
    assert found.disk > 0
    assert found.kernel
    assert found.architecture not in ("x86_64", "aarch64")


@pytest.mark.parametrize(
    ("space", "is_short"),
    [
        (FileSystemSpace(100 * GIB, GIB, 0, 0), False),
        (FileSystemSpace(100 * GIB, GIB - 1, 0, 0), True),
        # A small one is short only below a tenth.
        (FileSystemSpace(GIB, GIB // 10 + 1, 0, 0), False),
        (FileSystemSpace(GIB, GIB // 10 - 1, 0, 0), True),
        (FileSystemSpace(100 * GIB, 50 * GIB, 10**7, 10_000), False),
        (FileSystemSpace(100 * GIB, 50 * GIB, 10**7, 9_999), True),
        (FileSystemSpace(100 * GIB, 50 * GIB, 1000, 50), False),
        (FileSystemSpace(100 * GIB, 50 * GIB, 1000, 49), True),
    ],
)
def test_a_disk_is_short_of_space_or_of_files(space: FileSystemSpace, is_short: bool) -> None:
    assert space.is_short is is_short


def test_a_disk_that_cannot_be_asked_is_not_full(tmp_path: Path) -> None:
    assert not machine.is_disk_short(tmp_path / "gone")
    assert machine.disk_space(tmp_path).size > 0
