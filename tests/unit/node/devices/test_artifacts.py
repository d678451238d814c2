"""What the answers of plugins come to."""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from kedge.deviceplugin import wire
from kedge.deviceplugin.messages import (
    CDIDevice,
    ContainerAllocateResponse,
    DeviceSpec,
    Mount,
)
from kedge.node.devices import artifacts
from kedge.node.devices.ledger import DeviceAllocation, DeviceOwner
from kedge.node.pod.dependencies import ConfigFailure, DeviceGrant
from kedge.node.runtime import runtime


def device_grant(holdings: list[DeviceAllocation], directories: Sequence[Path] = ()) -> DeviceGrant:
    nodes = directories[0] / "nodes" if directories else Path("/nowhere")
    return artifacts.device_grant(holdings, directories, nodes)


def holding(resource: str, answer: ContainerAllocateResponse) -> DeviceAllocation:
    return DeviceAllocation(DeviceOwner("u", "c"), resource, ("a",), {}, wire.encode(answer))


def test_everything_a_plugin_answers_reaches_the_container() -> None:
    answer = ContainerAllocateResponse(
        envs={"A": "1"},
        mounts=[Mount(container_path="/in", host_path="/out", read_only=True)],
        devices=[DeviceSpec(container_path="/dev/x", host_path="/dev/null", permissions="r")],
        annotations={"k": "v"},
    )
    got = device_grant([holding("example.com/a", answer)])
    assert got.env == {"A": "1"}
    assert got.mounts == [
        runtime.ContainerMount(
            container_path="/in", host_path="/out", read_only=True, makes_directory=True
        )
    ]
    assert got.devices == [
        runtime.ContainerDevice(container_path="/dev/x", host_path="/dev/null", permissions="r")
    ]
    assert got.annotations == {"k": "v"}


def test_the_first_resource_by_name_wins(caplog: pytest.LogCaptureFixture) -> None:
    one = holding("example.com/a", ContainerAllocateResponse(envs={"A": "a", "X": "same"}))
    two = holding("example.com/b", ContainerAllocateResponse(envs={"A": "b", "X": "same"}))
    assert device_grant([two, one]).env == {"A": "a", "X": "same"}
    assert [record.getMessage() for record in caplog.records] == [
        "two device plugins set the same variable=A container=c; ignoring the one of example.com/b"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_a_directory_stands_for_the_devices_in_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "sub").mkdir()
    try:
        os.mknod(tmp_path / "sub" / "n", 0o20666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this machine lets nobody make device nodes")
    spec = DeviceSpec(container_path="/dev/all", host_path=str(tmp_path))
    got = device_grant([holding("example.com/a", ContainerAllocateResponse(devices=[spec]))])
    assert [each.container_path for each in got.devices] == ["/dev/all/sub/n"]


def cdi_spec(directory: Path, **edits: object) -> None:
    directory.mkdir(exist_ok=True)
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "vendor.com/net",
        "containerEdits": {"env": ["ALL=1"]},
        "devices": [{"name": "one", "containerEdits": edits}],
    }
    (directory / "vendor.json").write_text(json.dumps(spec))


def named(*names: str) -> DeviceAllocation:
    devices = [CDIDevice(name=name) for name in names]
    return holding("example.com/a", ContainerAllocateResponse(cdi_devices=devices))


def test_named_devices_are_looked_up(tmp_path: Path) -> None:
    cdi_spec(
        tmp_path,
        env=["ONE=1"],
        deviceNodes=[{"path": "/dev/one", "hostPath": "/dev/null"}],
        mounts=[{"hostPath": "/lib/one", "containerPath": "/one", "options": ["ro", "bind"]}],
        additionalGids=[5],
    )
    got = device_grant([named("vendor.com/net=one", "vendor.com/net=one")], [tmp_path])
    assert got.env == {"ALL": "1", "ONE": "1"}
    assert [(d.container_path, d.host_path) for d in got.devices] == [("/dev/one", "/dev/null")]
    assert [(m.container_path, m.read_only) for m in got.mounts] == [("/one", True)]
    assert got.groups == [5]


def test_a_later_directory_counts(tmp_path: Path) -> None:
    cdi_spec(tmp_path / "etc", env=["FROM=etc"])
    cdi_spec(tmp_path / "run", env=["FROM=run"])
    (tmp_path / "run" / "broken.json").write_text("{")
    directories = [tmp_path / "etc", tmp_path / "run", tmp_path / "none"]
    assert device_grant([named("vendor.com/net=one")], directories).env["FROM"] == "run"


def test_a_name_that_nobody_knows_is_a_failure(tmp_path: Path) -> None:
    cdi_spec(tmp_path)
    with pytest.raises(ConfigFailure) as caught:
        device_grant([named("vendor.com/net=two")], [tmp_path])
    assert str(caught.value) == (
        "CDI device injection failed: unresolvable CDI devices vendor.com/net=two"
    )


def test_what_this_node_does_not_do_is_said(tmp_path: Path) -> None:
    cdi_spec(tmp_path, hooks=[{"hookName": "createRuntime", "path": "/bin/true"}])
    with pytest.raises(ConfigFailure, match="this node does not support hooks"):
        device_grant([named("vendor.com/net=one")], [tmp_path])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_a_device_that_is_only_numbers_is_made(tmp_path: Path) -> None:
    cdi_spec(tmp_path, deviceNodes=[{"path": "/tmp/one", "type": "b", "major": 1, "minor": 0}])
    try:
        (device,) = device_grant([named("vendor.com/net=one")], [tmp_path]).devices
    except ConfigFailure:
        pytest.skip("this machine lets nobody make device nodes")
    status = os.stat(device.host_path)
    assert stat.S_ISBLK(status.st_mode)
    assert status.st_rdev == os.makedev(1, 0)
    assert device.container_path == "/tmp/one"
