from pathlib import Path

import pytest

from kedge.node.runtime.cri import leftover_groups

MOUNTS = """\
1 2 0:1 / /sys rw - sysfs sysfs rw
1 2 0:1 / /sys/fs/cgroup/blkio rw,nosuid - cgroup cgroup rw,blkio
1 2 0:1 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw
"""


def test_hierarchies_are_found_among_mounts() -> None:
    found = [*leftover_groups.hierarchies(MOUNTS)]
    assert found == ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup/unified"]


def test_empty_groups_go_where_kedge_does_not_manage_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("blkio", "memory"):
        (tmp_path / name / "kedge/node/pod1").mkdir(parents=True)
    (tmp_path / "blkio/kedge/other").mkdir()
    (tmp_path / "blkio/kedge/node/pod1/crio-c/inner").mkdir(parents=True)
    places = [str(tmp_path / "blkio"), str(tmp_path / "memory")]
    monkeypatch.setattr(leftover_groups, "hierarchies", lambda _: iter(places))
    leftover_groups.remove("/kedge/node/pod1", {str(tmp_path / "memory")})
    leftover_groups.remove("", ())
    assert (tmp_path / "memory/kedge/node/pod1").exists()
    assert [*(tmp_path / "blkio/kedge").iterdir()] == [tmp_path / "blkio/kedge/other"]
