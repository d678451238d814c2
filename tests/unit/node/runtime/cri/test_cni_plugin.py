import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from kedge.node.runtime.cri import cni_plugin
from kedge.node.runtime.cri.cni_plugin import CniDirectories, directories, install
from kedge.node.runtime.runtime import RuntimeFailure


@pytest.fixture
def places(tmp_path: Path) -> CniDirectories:
    return CniDirectories(tmp_path / "net.d", tmp_path / "bin")


def test_directories_are_those_of_the_runtime() -> None:
    config = {"PluginDirs": ["/a/bin", "/b"], "PluginConfDir": "/a/net.d"}
    info = {"cniconfig": msgspec.json.encode(config).decode()}
    assert directories(info) == CniDirectories(Path("/a/net.d"), Path("/a/bin"))
    for unknown in ({}, {"cniconfig": "?"}, {"cniconfig": "[]"}, {"cniconfig": "{}"}):
        assert directories(unknown) == CniDirectories()


def test_the_plugin_is_written_once(places: CniDirectories) -> None:
    assert install(places)
    assert not install(places)
    assert sorted(os.listdir(places.plugins)) == ["kedge-network", "loopback"]
    assert os.listdir(places.networks) == ["10-kedge.conflist"]


def test_a_loopback_plugin_is_kept(places: CniDirectories) -> None:
    places.plugins.mkdir()
    (places.plugins / "loopback").write_text("theirs")
    install(places)
    assert (places.plugins / "loopback").read_text() == "theirs"


def test_another_network_is_refused(places: CniDirectories) -> None:
    places.networks.mkdir()
    (places.networks / "05-other.conflist").write_text("{}")
    with pytest.raises(RuntimeFailure, match=r"05-other.conflist, but kedge attaches pods"):
        install(places)
    assert not places.plugins.exists()


def test_files_of_other_kinds_are_no_networks(places: CniDirectories) -> None:
    places.networks.mkdir()
    (places.networks / "00-README").write_text("")
    assert install(places)


def test_the_plugin_answers_as_cni_wants(places: CniDirectories) -> None:
    install(places)
    answers = {
        command: subprocess.run(
            [places.plugins / cni_plugin.PLUGIN],
            env={"CNI_COMMAND": command, "CNI_IFNAME": "eth0", "CNI_NETNS": "/run/netns/a"},
            capture_output=True,
            check=True,
        ).stdout
        for command in ("ADD", "DEL", "CHECK", "VERSION")
    }
    added = msgspec.json.decode(answers["ADD"])
    assert added["interfaces"] == [{"name": "eth0", "sandbox": "/run/netns/a"}]
    assert added["ips"] == [{"version": "4", "interface": 0, "address": "192.0.2.1/32"}]
    assert msgspec.json.decode(answers["VERSION"])["supportedVersions"]
    assert (answers["DEL"], answers["CHECK"]) == (b"", b"")
