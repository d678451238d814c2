"""Control groups that were delegated to an ordinary user, in directories of plain files."""

import os
from pathlib import Path

import pytest

from kedge.supervisor.kernel import delegation
from kedge.supervisor.kernel.cgroups import Cgroups, Hierarchy
from kedge.supervisor.kernel.delegation import DelegatedGroup, above, choose, own_path, usable

OWN = "4:memory:/user/mine\n2:cpu,cpuacct:/\n0::/user.slice/mine\n"
ALL = frozenset({"cpu", "memory", "pids"})


def test_the_own_group_is_found_in_each_hierarchy() -> None:
    assert own_path(OWN, Hierarchy("/m", frozenset({"memory"}), False)) == "/user/mine"
    assert own_path(OWN, Hierarchy("/c", frozenset({"cpuacct"}), False)) == "/"
    assert own_path(OWN, Hierarchy("/u", frozenset(), True)) == "/user.slice/mine"
    assert own_path(OWN, Hierarchy("/p", frozenset({"pids"}), False)) == "/"


def test_groups_above_come_the_nearest_first() -> None:
    assert above("/a/b") == ["/a/b", "/a", ""]
    assert above("/") == [""]
    # Outside of the cgroup namespace.
    assert above("/../b") == [""]


def test_most_controllers_win_then_the_nearest() -> None:
    few = DelegatedGroup("/a/b/c", frozenset({"memory"}), True)
    near = DelegatedGroup("/a/b", ALL, True)
    far = DelegatedGroup("/a", ALL, True)
    assert choose([few, near, far], needs_empty=True) == near
    assert choose([near._replace(is_empty=False), far], needs_empty=True) == far
    assert choose([near._replace(is_empty=False), far], needs_empty=False) is not far
    assert choose([], needs_empty=False) is None


def group(place: Path, controllers: str = "", enabled: str = "", processes: str = "") -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "cgroup.procs").write_text(processes)
    (place / "cgroup.controllers").write_text(controllers)
    (place / "cgroup.subtree_control").write_text(enabled)


def documents(found: Cgroups) -> list[tuple[str, list[str]]]:
    return [(each.place, sorted(each.controllers)) for each in found.hierarchies]


def test_a_session_of_systemd_is_used_above_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tmp_path / "user.slice" / "app.slice"
    group(tmp_path, "cpu memory pids", "cpu memory pids")
    group(tmp_path / "user.slice", "cpu memory pids", "memory pids")
    group(session, "memory pids", "memory pids")
    group(session / "mine", "memory pids", processes="7\n")
    refuse(monkeypatch, tmp_path)
    machine = Cgroups([Hierarchy(str(tmp_path), ALL, True)])
    found = usable(machine, "0::/user.slice/app.slice/mine\n", is_root=False)
    # The controller cpu was not enabled below, and is now.
    assert documents(found) == [(str(tmp_path / "user.slice"), ["cpu", "memory", "pids"])]
    assert (tmp_path / "user.slice" / "cgroup.subtree_control").read_text().startswith("+cpu")
    [hierarchy] = found.hierarchies
    assert hierarchy.is_delegated
    assert Cgroups.of(found.documents()).documents() == found.documents()


def refuse(monkeypatch: pytest.MonkeyPatch, *places: Path) -> None:
    """Let nothing be written in directories themselves, as if they belonged to root."""
    refused = {str(place) for place in places}
    monkeypatch.setattr(os, "access", lambda path, mode: path not in refused)


def test_only_delegated_controllers_of_the_first_version_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("memory", "pids", "devices")
    for name in names:
        group(tmp_path / name)
        group(tmp_path / name / "user" / "mine")
    refuse(monkeypatch, *(tmp_path / name for name in names), tmp_path / "pids/user/mine")
    machine = Cgroups([Hierarchy(str(tmp_path / name), frozenset({name}), False) for name in names])
    own = "".join(f"4:{name}:/user/mine\n" for name in names)
    found = usable(machine, own, is_root=False)
    # Only root may limit devices.
    assert documents(found) == [
        (str(tmp_path / "memory/user/mine"), ["memory"]),
        (str(tmp_path / "pids/user"), ["pids"]),
    ]
    assert found.controllers() == {"memory", "pids"}
    view = found.group("/pod").views()
    assert view == [("memory", "memory"), ("pids", "pids")]


def test_root_uses_whole_hierarchies(tmp_path: Path) -> None:
    group(tmp_path, "memory", "memory")
    machine = Cgroups([Hierarchy(str(tmp_path), frozenset({"memory"}), True)])
    found = usable(machine, "0::/somewhere\n", is_root=True)
    assert documents(found) == [(str(tmp_path), ["memory"])]
    assert not found.hierarchies[0].is_delegated


def test_a_read_only_hierarchy_is_of_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(tmp_path, "memory")
    refuse(monkeypatch, tmp_path)
    machine = Cgroups([Hierarchy(str(tmp_path), frozenset({"memory"}), True)])
    assert usable(machine, "0::/\n", is_root=True).hierarchies == []
    assert delegation.usable(machine, "0::/\n", is_root=False).controllers() == frozenset()
