from pathlib import Path

import pytest

from kedge.api.core_v1.pod.container import EphemeralContainer
from kedge.node.pod import labels
from kedge.node.pod.dependencies import ConfigFailure, DeviceGrant
from kedge.node.pod.runtime_specs import container_spec, sandbox_spec, sysctl_name, target_of
from kedge.node.runtime.runtime import ContainerLimits, ContainerSecurity, DnsConfig, PortMapping
from kedge.testing.node import FakeImage
from kedge.testing.pods import new_pod


def test_a_sandbox_is_what_the_pod_shares() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]
    pod = new_pod(metadata={"uid": "u", "labels": {"a": "b"}}, container={"ports": ports})
    spec = sandbox_spec(pod, 2, logs=Path("/logs"), cgroup="/cg", dns=DnsConfig(), first_id=65536)
    assert spec.first_id == 65536
    assert (spec.attempt, spec.hostname, spec.cgroup_parent) == (2, "pod", "/cg")
    assert spec.ports == [
        PortMapping(container_port=80, host_port=8080),
        PortMapping(container_port=81),
    ]
    assert spec.labels["a"] == "b"
    assert spec.labels[labels.POD_UID] == "u"


def test_commands_see_variables() -> None:
    pod = new_pod(container={"command": ["run", "$(A)"], "args": ["$$(A)"]})
    spec = container_spec(
        pod,
        pod.spec.containers[0],
        3,
        image=FakeImage("id", "image@sha256:1", "docker.io/image"),
        env=[("A", "1")],
        mounts=[],
        limits=ContainerLimits(),
        security=ContainerSecurity(),
        grant=DeviceGrant(),
    )
    assert (list(spec.command), list(spec.args)) == (["run", "1"], ["$(A)"])
    assert (spec.image, spec.image_name, spec.log_path) == ("id", "image", "ctr/3.log")
    assert spec.image_reference == "docker.io/image"
    assert spec.annotations[labels.IMAGE_ID] == "image@sha256:1"


def test_a_target_must_be_there() -> None:
    debug = EphemeralContainer(name="debug", targetContainerName="ctr")
    assert target_of(debug, {"ctr": "c-1"}) == "c-1"
    with pytest.raises(ConfigFailure, match="unable to find target container ctr"):
        target_of(debug, {})


def test_settings_of_the_kernel_may_be_written_with_slashes() -> None:
    assert sysctl_name("kernel.shm_rmid_forced") == "kernel.shm_rmid_forced"
    assert sysctl_name("net/ipv4/conf/eth0.1/rp_filter") == "net.ipv4.conf.eth0/1.rp_filter"
