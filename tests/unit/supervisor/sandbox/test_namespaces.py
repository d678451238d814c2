import os
from typing import Any

import pytest

from kedge.supervisor.sandbox import namespaces
from kedge.supervisor.sandbox.namespaces import PodNamespaces


def shared(**changed: Any) -> Any:
    return {"host_network": False, "host_ipc": False, "first_id": 0, "sysctls": {}, **changed}


@pytest.mark.parametrize(
    ("spec", "kinds"),
    [
        (shared(), ["net", "uts", "ipc", "mnt"]),
        (shared(host_network=True), ["ipc", "mnt"]),
        (shared(host_ipc=True), ["net", "uts"]),
        (shared(host_network=True, host_ipc=True), []),
        (shared(first_id=65_536), ["user", "net", "uts", "ipc", "mnt"]),
    ],
)
def test_a_pod_has_the_namespaces_that_it_does_not_share_with_the_machine(
    spec: Any, kinds: list[str]
) -> None:
    assert namespaces.kinds_of(spec) == kinds


def test_records_of_earlier_releases_have_no_first_id() -> None:
    spec = shared()
    del spec["first_id"]
    assert namespaces.first_id_of(spec) == 0


@pytest.mark.parametrize(
    ("sysctl", "changed", "error"),
    [
        ("net.core.somaxconn", {"host_network": True}, "not allowed with host network"),
        ("kernel.shmmax", {"host_ipc": True}, "not allowed with host ipc"),
        ("kernel.core_pattern", {}, "not in a separate kernel namespace"),
        ("net..core", {}, "is not a name"),
        ("net./../../kernel/core_pattern", {}, "is not a name"),
    ],
)
def test_sysctls_of_the_machine_are_refused(
    sysctl: str, changed: dict[str, bool], error: str
) -> None:
    with pytest.raises(OSError, match=error):
        namespaces._check_sysctls(shared(sysctls={sysctl: "1"}, **changed))


def test_sysctls_of_a_pods_own_namespaces_are_allowed() -> None:
    sysctls = {"net.ipv4.ip_forward": "1", "kernel.shmmax": "1", "fs.mqueue.msg_max": "1"}
    namespaces._check_sysctls(shared(sysctls=sysctls))


def test_a_slash_in_a_sysctl_is_a_dot_of_a_name() -> None:
    assert namespaces._path("net.ipv4.conf.eth0/1.forwarding") == "net/ipv4/conf/eth0.1/forwarding"


def test_own_namespaces_are_not_entered() -> None:
    assert namespaces.different(os.getpid()) == 0


def test_a_pod_without_namespaces_has_the_machines() -> None:
    pod = PodNamespaces()
    assert (pod.joined(), pod.shm, pod.userns, pod.network(1)) == ([], -1, -1, "")


def test_closing_releases_the_namespaces() -> None:
    pod = PodNamespaces()
    pod.held = {"net": os.open("/proc/self/ns/net", os.O_RDONLY)}
    assert os.path.exists(pod.network(os.getpid()))
    held = pod.held["net"]
    pod.close()
    assert pod.held == {}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)
