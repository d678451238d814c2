from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import (
    ContainerExtendedResourceRequest,
    PodExtendedResourceClaimStatus,
    PodStatus,
)
from kedge.node.pod.admission import admit
from kedge.testing.node import NODE, FakeNodeFacts
from kedge.testing.pods import new_pod


def pod(container: dict[str, Any] | None = None, **spec: Any) -> Pod:
    whole = {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}], **spec}
    return new_pod(spec=whole, container=container or {})


def asking(**requests: str) -> Pod:
    return pod({"resources": {"requests": requests}})


def reason(of: Pod, *others: Pod) -> str:
    found = admit(of, others, FakeNodeFacts().node, lambda name: False)
    return "" if found is None else found.reason


def test_a_pod_that_fits_is_taken() -> None:
    assert reason(asking(cpu="4", memory="4Gi"), asking(cpu="6")) == ""


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"cpu": "11"}, "OutOfcpu"),
        ({"memory": "11Gi"}, "OutOfmemory"),
        ({"ephemeral-storage": "1Gi"}, "OutOfephemeral-storage"),
        ({"example.com/gpu": "1"}, ""),
        (
            {"deviceclass.resource.kubernetes.io/gpus": "1"},
            "OutOfdeviceclass.resource.kubernetes.io/gpus",
        ),
    ],
)
def test_what_the_node_lacks_is_named(requests: dict[str, str], expected: str) -> None:
    assert reason(asking(**requests)) == expected


def test_resources_that_a_claim_provides_are_not_counted() -> None:
    name = "deviceclass.resource.kubernetes.io/gpus"
    mapping = ContainerExtendedResourceRequest(
        containerName="c", resourceName=name, requestName="r"
    )
    status = PodExtendedResourceClaimStatus(requestMappings=[mapping], resourceClaimName="x")
    claiming = replace(asking(**{name: "1"}), status=PodStatus(extendedResourceClaimStatus=status))
    assert reason(claiming) == ""


def test_there_may_only_be_so_many_pods() -> None:
    assert reason(pod(), *[pod()] * 110) == "OutOfpods"


def test_host_ports_are_given_once() -> None:
    def on(port: int, ip: str = "") -> Pod:
        return pod({"ports": [{"containerPort": 80, "hostPort": port, "hostIP": ip}]})

    assert reason(on(80), on(80)) == "NodePorts"
    assert reason(on(80, "127.0.0.1"), on(80)) == "NodePorts"
    assert reason(on(80, "127.0.0.1"), on(80, "127.0.0.2")) == ""


@pytest.mark.parametrize(
    ("name", "spec", "expected"),
    [
        ("kernel.shm_rmid_forced", {}, ""),
        ("net/ipv4/tcp_syncookies", {}, ""),
        ("kernel.shm_rmid_forced", {"hostIPC": True}, "SysctlForbidden"),
        ("net.ipv4.tcp_syncookies", {"hostNetwork": True}, "SysctlForbidden"),
        ("kernel.msgmax", {}, "SysctlForbidden"),
    ],
)
def test_harmless_settings_of_the_kernel_may_be_had(
    name: str, spec: dict[str, Any], expected: str
) -> None:
    context = {"sysctls": [{"name": name, "value": "1"}]}
    assert reason(pod(securityContext=context, **spec)) == expected


def test_another_system_is_refused() -> None:
    assert reason(pod(os={"name": "windows"})) == "PodOSNotSupported"
