"""Details of the machine."""

from pathlib import Path

from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.windows import DETAILS
from kedge.node.stats.details import PERIODS
from kedge.node.stats.machine_details import MachineDetails


def test_disks_count_once_and_everything_else_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "block" / "vda" / "device").mkdir(parents=True)
    (tmp_path / "block" / "dm-0").mkdir()
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "io").write_text("some avg10=0.00 total=1500000\n")
    (tmp_path / "vmstat").write_text("nr_free_pages 1\npgfault 9\npgmajfault 3\noom_kill 1\n")
    (tmp_path / "diskstats").write_text(
        " 254 0 vda 10 0 8 1 20 0 16 1 0 1 1 0 0 0 0 0 0\n"
        " 254 1 vda1 10 0 8 1 20 0 16 1 0 1 1 0 0 0 0 0 0\n"
        " 253 0 dm-0 10 0 8 1 20 0 16 1 0 1 1 0 0 0 0 0 0\n"
    )
    found = [UNKNOWN] * (PERIODS + 1)
    source = MachineDetails(str(tmp_path), str(tmp_path), str(tmp_path / "block"))
    source.fill(found)
    source.close()
    named = {each.name: value for each, value in zip(DETAILS, found, strict=False) if value >= 0}
    assert named.pop("ephemeral-storage") > 0
    assert named.pop("ephemeral-inodes") >= 0
    assert named == {
        "disk-read": 4096.0,
        "disk-write": 8192.0,
        "disk-reads": 10.0,
        "disk-writes": 20.0,
        "io-pressure-some": 1.5,
        "oom-kills": 1.0,
        "page-faults": 9.0,
        "major-page-faults": 3.0,
    }


def test_a_disk_that_is_added_later_counts(tmp_path: Path) -> None:
    source = MachineDetails(str(tmp_path), str(tmp_path), str(tmp_path / "block"))
    reads = [each.name for each in DETAILS].index("disk-reads")
    text, counted = "", []
    for name in ("vda", "vdb"):
        (tmp_path / "block" / name / "device").mkdir(parents=True)
        text += f" 254 0 {name} 10 0 8 1 20 0 16 1 0 1 1 0 0 0 0 0 0\n"
        (tmp_path / "diskstats").write_text(text)
        found = [UNKNOWN] * (PERIODS + 1)
        source.fill(found)
        counted.append(found[reads])
    assert counted == [10.0, 20.0]


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    found = [UNKNOWN] * (PERIODS + 1)
    nowhere = str(tmp_path / "nowhere")
    MachineDetails(nowhere, nowhere, nowhere).fill(found)
    assert set(found) == {UNKNOWN}
