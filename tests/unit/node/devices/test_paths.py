"""Where sockets are."""

import socket
from pathlib import Path

from kedge.node.devices.devices import find_directory
from kedge.node.devices.paths import DirectoryClaim, places


def test_neighbours_have_the_names_that_plugins_expect() -> None:
    found = places(Path("/var/lib/kubelet/device-plugins"))
    assert found.watched == Path("/var/lib/kubelet/plugins_registry")
    assert found.resources == Path("/var/lib/kubelet/pod-resources")


def test_another_directory_keeps_everything_inside() -> None:
    assert places(Path("/home/me/p")).watched == Path("/home/me/p/plugins_registry")


def test_two_agents_do_not_share_a_directory(tmp_path: Path) -> None:
    first = DirectoryClaim.stake(tmp_path / "d")
    assert first is not None
    assert DirectoryClaim.stake(tmp_path / "d") is None
    directory, claim = find_directory(tmp_path / "d", tmp_path / "own")
    assert directory == tmp_path / "own"
    assert claim is not None
    claim.close()
    first.close()
    again = DirectoryClaim.stake(tmp_path / "d")
    assert again is not None
    again.close()


def test_a_directory_that_a_kubelet_serves_is_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(tmp_path / "kubelet.sock"))
        claim = DirectoryClaim.stake(tmp_path)
        assert claim is not None, "a socket that nobody listens at is a leftover"
        claim.close()
        kubelet.listen()
        assert DirectoryClaim.stake(tmp_path) is None


def test_a_directory_that_cannot_be_made_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    directory, claim = find_directory(tmp_path / "file" / "d", tmp_path / "own")
    assert directory == tmp_path / "own"
    assert claim is not None
    claim.close()
