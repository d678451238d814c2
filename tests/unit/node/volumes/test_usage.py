"""What pods keep on disk, and when it is too much."""

import os
from pathlib import Path
from typing import Any

import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.node.volumes import usage
from kedge.supervisor.files import mapped, tree_usage
from kedge.supervisor.files.removal import remove

MI = 1024 * 1024


def pod(volumes: dict[str, dict[str, Any]], **limits: str) -> Pod:
    """With an emptyDir for each of the volumes, and a container for each of the limits."""
    containers = [
        {"name": name, "image": "i", "resources": {"limits": {"ephemeral-storage": text}}}
        for name, text in limits.items()
    ]
    containers = containers or [{"name": "c", "image": "i"}]
    given = [{"name": name, "emptyDir": source} for name, source in volumes.items()]
    spec = {"containers": containers, "volumes": given}
    return RESOURCE.from_document({"metadata": {"name": "p"}, "spec": spec})


def test_only_pods_with_a_limit_are_looked_at() -> None:
    assert not usage.has_storage_limit(pod({"v": {}}))
    assert not usage.has_storage_limit(pod({"v": {"sizeLimit": "0"}}))
    assert usage.has_storage_limit(pod({"v": {"sizeLimit": "1Mi"}}))
    assert usage.has_storage_limit(pod({}, c="1Gi"))


def test_a_volume_may_hold_its_limit_and_not_a_byte_more() -> None:
    limited = pod({"other": {}, "v": {"sizeLimit": "1Mi"}})
    assert usage.excess(limited, {"v": MI, "other": 99 * MI}, {}) == ""
    assert usage.excess(limited, {"v": MI + 1}, {}) == (
        'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    )


def test_a_pod_may_use_what_its_containers_may_together() -> None:
    limited = pod({"v": {}, "m": {"medium": "Memory"}}, a="1Mi", b="1Mi")
    held = {"v": MI, "m": 99 * MI}
    assert usage.excess(limited, held, {"a": MI}) == ""
    assert usage.excess(limited, held, {"a": MI, "b": 1}) == (
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "
    )


def test_a_container_may_use_its_own_limit_only() -> None:
    limited = pod({}, a="1Mi", b="1Mi")
    assert usage.excess(limited, {}, {"a": MI + 1}) == (
        'Container a exceeded its local ephemeral storage limit "1Mi". '
    )


def test_what_is_held_is_what_the_disk_gives(tmp_path: Path) -> None:
    (tmp_path / "deep" / "down").mkdir(parents=True)
    empty = usage.disk_usage([tmp_path])
    (tmp_path / "deep" / "down" / "file").write_bytes(b"x" * MI)
    os.link(tmp_path / "deep" / "down" / "file", tmp_path / "again")
    (tmp_path / "link").symlink_to("/usr")
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(1024 * MI)
    assert usage.disk_usage([tmp_path]) - empty == pytest.approx(MI, abs=8192)


def test_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert usage.disk_usage([tmp_path / "missing"]) == 0


def test_what_lies_deeper_than_any_path_is_held_as_well(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("nested", dir_fd=at)
        below = os.open("nested", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at)
    os.write(file, b"x" * MI)
    os.close(file)
    os.close(at)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "file").write_bytes(b"x" * MI)
    assert usage.disk_usage([tmp_path]) >= 2 * MI
    remove(tmp_path / "nested")


def test_small_files_of_the_pod_count_but_not_what_is_below_them(tmp_path: Path) -> None:
    """CVE-2020-8557: a container writes to its /etc/hosts."""
    (tmp_path / "etc-hosts").write_bytes(b"x" * MI)
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "volumes").mkdir()
    (tmp_path / "volumes" / "large").write_bytes(b"x" * MI)
    kept = usage.top_level_usage([tmp_path, tmp_path / "missing"])
    assert MI <= kept < 2 * MI


def test_directories_of_other_users_are_measured_with_subordinate_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tree_usage.TreeUsage(5, is_complete=False)
    monkeypatch.setattr(tree_usage, "disk_usage", lambda _: found)
    monkeypatch.setattr(mapped, "usage", lambda paths: 7 if paths == [str(tmp_path)] else 0)
    assert usage.disk_usage([tmp_path]) == 7
    monkeypatch.setattr(mapped, "usage", lambda _: None)
    assert usage.disk_usage([tmp_path]) == 5
