"""Control groups of pods on a hierarchy that is a plain directory, and on this machine's own."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.node.cgroups.tree import PodCgroupTree
from kedge.supervisor.kernel import cgroups
from kedge.supervisor.kernel.cgroups import Cgroups

ROOT = "/kedge/unit-test"
GUARANTEED = {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "1", "memory": "64Mi"}}


def pod(uid: str, resources: Mapping[str, object]) -> Pod:
    container = {"name": "c", "image": "i", "resources": resources}
    return RESOURCE.from_document(
        {"metadata": {"name": "p", "uid": uid}, "spec": {"containers": [container]}}
    )


@pytest.fixture
def machine() -> Cgroups:
    found = cgroups.here()
    if "memory" not in found.controllers():
        pytest.skip("control groups of this machine cannot be written")
    return found


def test_pod_lives_in_the_group_of_its_class_with_its_limits(machine: Cgroups) -> None:
    tree = PodCgroupTree(machine, ROOT, 2**33, 50)
    try:
        assert tree.ensure(pod("g", GUARANTEED)) == f"{ROOT}/podg"
        assert tree.ensure(pod("b", {"requests": {"cpu": "250m"}})) == f"{ROOT}/burstable/podb"
        assert tree.ensure(pod("n", {})) == f"{ROOT}/besteffort/podn"
        assert sorted(tree.pod_uids()) == ["b", "g", "n"]
        pids = machine.place("pids")
        assert pids is not None
        assert Path(f"{pids.place}{ROOT}/podg/pids.max").read_text() == "50\n"
        tree.remove("b")
        assert sorted(tree.pod_uids()) == ["g", "n"]
    finally:
        assert tree.remove_all()
    memory = machine.place("memory")
    assert memory is not None
    assert not Path(f"{memory.place}{ROOT}").exists()


def test_burstable_pods_weigh_what_they_request_together(machine: Cgroups) -> None:
    cpu = machine.place("cpu")
    if cpu is None or cpu.unified:
        pytest.skip("the cpu controller of this machine counts in weights")
    tree = PodCgroupTree(machine, ROOT, 2**33, 50)
    try:
        tree.ensure(pod("a", {"requests": {"cpu": "250m"}}))
        tree.ensure(pod("b", {"requests": {"cpu": "1"}}))
        file = Path(f"{cpu.place}{ROOT}/burstable/cpu.shares")
        assert file.read_text() == "1280\n"
        tree.remove("b")
        assert file.read_text() == "256\n"
        tree.ensure(pod("a", {"requests": {"cpu": "500m"}}))
        assert file.read_text() == "512\n"
    finally:
        assert tree.remove_all()


def test_limits_follow_a_resize(machine: Cgroups) -> None:
    cpu = machine.place("cpu")
    if cpu is None or cpu.unified:
        pytest.skip("the cpu controller of this machine is of the second version")
    tree = PodCgroupTree(machine, ROOT, 2**33, 50)
    try:
        limits = {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
        tree.ensure(pod("a", limits))
        tree.update(pod("a", {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}))
        path = f"{cpu.place}{ROOT}/burstable/poda/cpu.cfs_quota_us"
        assert Path(path).read_text() == "200000\n"
    finally:
        assert tree.remove_all()
