"""Where sockets are."""

import os
import socket
from pathlib import Path

import pytest

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


def test_a_directory_beside_one_that_cannot_be_written_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /var/lib/kubelet in a pod of another cluster, for root too."""
    wanted, own = tmp_path / "kubelet" / "device-plugins", tmp_path / "own"
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "pod-resources")
    directory, claim = find_directory(wanted, own)
    assert directory == own
    assert claim is None
    monkeypatch.undo()
    directory, claim = find_directory(wanted, own)
    assert directory == wanted
    assert claim is not None
    claim.close()
