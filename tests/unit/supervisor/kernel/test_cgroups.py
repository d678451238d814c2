import os
from pathlib import Path

import pytest

from kedge.supervisor.kernel.cgroups import Cgroups, Hierarchy, discover, weight

HYBRID = """\
30 1 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
34 30 0:30 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
35 30 0:31 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
36 30 0:32 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
37 1 0:28 /docker/x /elsewhere rw,relatime - cgroup cgroup rw,memory
38 1 0:28 / /again rw,relatime - cgroup cgroup rw,memory
"""


def places(cgroups: Cgroups) -> list[str]:
    return [each.place.removeprefix("/sys/fs/cgroup/") for each in cgroups.hierarchies]


def test_hierarchies_are_found_by_what_they_control_not_by_name() -> None:
    cgroups = Cgroups(discover(HYBRID))
    assert places(cgroups) == ["cpu,cpuacct", "memory", "unified"]
    cpu = cgroups.place("cpu")
    assert cpu is not None
    assert cpu.place == "/sys/fs/cgroup/cpu,cpuacct"
    assert cgroups.group("/a/b").views() == [
        ("cpu,cpuacct", "cpu,cpuacct"),
        ("memory", "memory"),
    ]


@pytest.mark.parametrize("name", ["a\udcff", "a\u2028b", "a\u00a0b", "a\x0bb"])
def test_names_of_other_mounts_may_have_any_bytes(name: str) -> None:
    odd = f"29 1 0:25 / /{name} rw,relatime - tmpfs tmpfs rw\n"
    assert places(Cgroups(discover(odd + HYBRID))) == ["cpu,cpuacct", "memory", "unified"]


def test_without_the_second_version_groups_can_be_frozen_to_be_killed() -> None:
    first = "\n".join(line for line in HYBRID.splitlines() if "cgroup2" not in line)
    assert places(Cgroups(discover(first))) == ["cpu,cpuacct", "memory", "freezer"]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [(2, 1), (10, 4), (102, 17), (256, 35), (512, 59), (1024, 100), (4096, 303), (262_144, 10_000)],
)
def test_shares_become_weights_as_newer_runtimes_count(shares: int, expected: int) -> None:
    assert weight(shares) == expected


def second(tmp_path: Path, *files: str) -> Cgroups:
    """A hierarchy of the second version made of plain files."""
    controllers = frozenset({"cpu", "memory", "pids"})
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    for name in files:
        path = tmp_path / "pod" / "one" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Cgroups([Hierarchy(str(tmp_path), controllers, True)])


def test_limits_of_the_second_version_are_written_in_its_own_words(tmp_path: Path) -> None:
    files = (
        "memory.max",
        "memory.swap.max",
        "memory.oom.group",
        "cpu.max",
        "cpu.weight",
        "pids.max",
    )
    group = second(tmp_path, *files).group("/pod/one")
    asked = {"memory_limit": 1 << 20, "cpu_quota": 50_000, "cpu_shares": 1024, "pids_limit": -1}
    assert group.limit(asked) == []
    told = {name: (tmp_path / "pod/one" / name).read_text() for name in files}
    assert told == {
        "memory.max": "1048576",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "50000 100000",
        "cpu.weight": "100",
        "pids.max": "max",
    }


def test_what_was_not_asked_for_is_left_alone(tmp_path: Path) -> None:
    group = second(tmp_path, "pids.max").group("/pod/one")
    assert group.limit({"cpu_period": 100_000, "pids_limit": 7}) == []
    assert (tmp_path / "pod/one/pids.max").read_text() == "7"


def test_a_limit_without_its_controller_is_said_not_dropped(tmp_path: Path) -> None:
    cgroups = Cgroups([Hierarchy(str(tmp_path), frozenset({"memory"}), False)])
    said = cgroups.group("/one").limit(
        {"cpu_quota": 1000, "cpu_shares": 2, "hugepages": {"2MB": 1}}
    )
    assert said == [
        "the cpu limit is not enforced: there is no cpu controller",
        "the limit on huge pages of 2MB is not enforced: there is no controller",
    ]


@pytest.mark.parametrize(("old", "new", "first"), [(100, 50, "memory"), (100, 200, "memory.memsw")])
def test_swap_is_never_less_than_memory_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: int, new: int, first: str
) -> None:
    for name in ("memory", "memory.memsw"):
        (tmp_path / f"{name}.limit_in_bytes").write_text(str(old))
    written: list[str] = []
    monkeypatch.setattr(
        "kedge.supervisor.kernel.cgroups.write", lambda path, text: written.append(Path(path).name)
    )
    cgroups = Cgroups([Hierarchy(str(tmp_path), frozenset({"memory"}), False)])
    cgroups.group("").limit({"memory_limit": new})
    assert written[0] == f"{first}.limit_in_bytes"
    assert len(written) == 2


def test_victims_of_want_of_memory_are_counted(tmp_path: Path) -> None:
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    first = Cgroups([Hierarchy(str(tmp_path), frozenset({"memory"}), False)])
    assert first.group("").oom_kills() == 3
    (tmp_path / "memory.events.local").write_text("low 0\noom 2\noom_kill 2\n")
    unified = Cgroups([Hierarchy(str(tmp_path), frozenset({"memory"}), True)])
    assert unified.group("").oom_kills() == 2
    assert unified.group("/gone").oom_kills() == 0


def test_what_another_cluster_takes_along_when_it_goes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "kedge"
    leaves = [shared.rmdir]
    mkdir = os.mkdir

    def make(path: str, mode: int = 0o777) -> None:
        if path.endswith("/kedge/mine") and leaves:
            leaves.pop()()
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", make)
    first = Hierarchy(str(tmp_path), frozenset(["memory"]), False)
    second = Hierarchy(str(tmp_path / "pids"), frozenset(["pids"]), False)
    Cgroups([first, second]).group("/kedge/mine/pod").make()
    assert not leaves
    assert (shared / "mine" / "pod").is_dir()
    assert (tmp_path / "pids" / "kedge" / "mine" / "pod").is_dir()
