"""The directory of drivers: its name in pods, and mounts that reach the machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.node.host.kubelet_directory import KubeletDirectory, unshare
from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[KubeletDirectory]:
    root = tmp_path / "elsewhere"
    (root / "pods").mkdir(parents=True)
    yield KubeletDirectory(root, tmp_path / "devices", tmp_path / "device-plugins")
    for place in mounts.below(tmp_path):
        libc.unmount(place)


@pytest.fixture
def mountable(kubelet: KubeletDirectory) -> KubeletDirectory:
    try:
        mounts.memory(kubelet.root)
    except PermissionError:
        pytest.skip("this user may not mount")
    libc.unmount(str(kubelet.root))
    if mounts.is_shared(kubelet.root):
        pytest.skip("the mounts of this machine are shared already")
    return kubelet


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("/var/lib/kubelet", ""),
        ("/var/lib/kubelet/", ""),
        ("/var/lib/kubelet/plugins/d/csi.sock", "plugins/d/csi.sock"),
        ("/var/lib//kubelet/./pods", "pods"),
    ],
)
def test_the_path_in_manifests_leads_to_the_directory_of_the_node(
    kubelet: KubeletDirectory, named: str, found: str
) -> None:
    assert kubelet.on_machine(named) == kubelet.root / found


@pytest.mark.parametrize(
    "path", ["/var/lib/kubelets", "/var/lib", "/srv/x", "/var/lib/kubelet/../dpkg", "relative"]
)
def test_other_paths_stay(kubelet: KubeletDirectory, path: str) -> None:
    assert kubelet.on_machine(path) == Path(path)


def test_device_plugins_find_the_directory_where_they_register(kubelet: KubeletDirectory) -> None:
    found = kubelet.on_machine("/var/lib/kubelet/device-plugins/kubelet.sock")
    assert found == kubelet.root.parent / "device-plugins/kubelet.sock"


def test_drivers_in_pods_are_told_their_own_paths(kubelet: KubeletDirectory) -> None:
    assert kubelet.in_pods(kubelet.root / "pods/u/mount") == Path("/var/lib/kubelet/pods/u/mount")
    assert kubelet.in_pods(Path("/srv/x")) == Path("/srv/x")


def test_the_directory_is_shared_once_and_the_mount_goes_with_the_node(
    mountable: KubeletDirectory, tmp_path: Path
) -> None:
    place = mountable.root / "pods"
    for _ in range(2):
        mountable.share(place)
        assert mounts.is_shared(place)
        assert len(mounts.below(tmp_path)) == 1
    mounts.memory(place)
    assert unshare(tmp_path) == ""
    assert mounts.below(tmp_path) == []
    assert unshare(tmp_path) == ""


def test_an_agent_that_was_killed_before_it_shared_the_mount_is_followed_by_one_that_does(
    mountable: KubeletDirectory, tmp_path: Path
) -> None:
    mountable.share(mountable.root)
    libc.mount("", str(mountable.root), flags=libc.MS_PRIVATE)
    mountable.share(mountable.root)
    assert mounts.is_shared(mountable.root)
    assert len(mounts.below(tmp_path)) == 1


def test_other_directories_are_not_shared(mountable: KubeletDirectory, tmp_path: Path) -> None:
    mountable.share(tmp_path)
    assert mounts.below(tmp_path) == []


def test_a_directory_with_mounts_is_not_covered(
    mountable: KubeletDirectory, tmp_path: Path
) -> None:
    mounts.memory(mountable.root / "pods")
    mountable.share(mountable.root)
    assert mounts.below(tmp_path) == [str(mountable.root / "pods")]
    assert not mounts.is_shared(mountable.root)


def test_on_a_shared_mount_only_the_mounts_of_drivers_are_unmounted(
    mountable: KubeletDirectory, tmp_path: Path
) -> None:
    root = str(mountable.root)
    libc.mount(root, root, flags=libc.MS_BIND)
    libc.mount("", root, flags=libc.MS_SHARED)
    for _ in range(2):
        mountable.share(mountable.root / "pods")
        mounts.memory(mountable.root / "pods")
    assert unshare(tmp_path) == ""
    assert mounts.below(tmp_path) == [root]


def test_mounts_of_others_stay(mountable: KubeletDirectory, tmp_path: Path) -> None:
    root, pods = str(mountable.root), mountable.root / "pods"
    libc.mount(root, root, flags=libc.MS_BIND)
    libc.mount("", root, flags=libc.MS_SHARED)
    mounts.memory(pods)
    mountable.share(pods)
    assert unshare(tmp_path) == ""
    assert mounts.below(tmp_path) == [str(pods), root]


def test_nothing_stays_mounted_in_the_directory_of_a_node(
    mountable: KubeletDirectory, tmp_path: Path
) -> None:
    own = tmp_path / "kubelet"
    own.mkdir()
    mounts.memory(own)
    assert unshare(tmp_path) == ""
    assert mounts.below(tmp_path) == []
