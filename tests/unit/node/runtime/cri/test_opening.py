import os
from pathlib import Path

import pytest

from kedge.node.config import NodeConfig
from kedge.node.runtime.cri.opening import lack, node_identity
from kedge.settings.registries import parse_registry_mirror


def config(tmp_path: Path, **more: object) -> NodeConfig:
    return NodeConfig(
        name="n",
        cluster="c",
        state=tmp_path,
        images=tmp_path / "images",
        container_runtime="cri:///run/containerd/containerd.sock",
        **more,  # type: ignore[arg-type]
    )


def test_the_socket_is_in_the_setting(tmp_path: Path) -> None:
    assert config(tmp_path).cri_socket == Path("/run/containerd/containerd.sock")


def test_settings_for_pulls_by_kedge_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert lack(config(tmp_path)) == ""
    mirrors = (parse_registry_mirror("*=https://mirror.example"),)
    assert lack(config(tmp_path, registry_mirrors=mirrors)).startswith("--registry-mirror is for")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in lack(config(tmp_path))


def test_nodes_have_identities_of_their_own(tmp_path: Path) -> None:
    assert node_identity(tmp_path / "a") != node_identity(tmp_path / "b")
