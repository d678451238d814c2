"""What a container does without where its devices cannot be limited."""

from types import SimpleNamespace
from typing import Any

import pytest

from kedge.supervisor.container.container import ContainerProcess
from kedge.supervisor.kernel import devices

CHOWN = 1


class Cgroup:
    """A control group that has no say in devices."""

    path = "/none"

    def make(self) -> None: ...

    def limit(self, resources: dict[str, Any]) -> list[str]:
        return []

    def allow_devices(self, rules: list[str]) -> bool:
        return False

    def attach_point(self) -> str:
        return ""

    def watch_oom(self) -> None:
        return None


def container(*, privileged: bool) -> ContainerProcess:
    spec: Any = {
        "capabilities": devices.MKNOD | CHOWN,
        "privileged": privileged,
        "devices": [],
        "resources": {},
    }
    record = {"id": "one", "shortfalls": [], "cgroup": "/none"}
    groups = SimpleNamespace(group=lambda path: Cgroup())
    machine: Any = SimpleNamespace(rootless=False, cgroups=groups, loop=None)
    records: Any = SimpleNamespace(directory=lambda identity: f"/{identity}")
    return ContainerProcess(record, spec, machine, records=records, publish=lambda *_: None)


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)


def test_no_nodes_are_made_where_the_program_for_devices_cannot_be_attached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(directory: str, rules: list[str]) -> None:
        raise PermissionError(1, "bpf: Operation not permitted")

    monkeypatch.setattr(devices, "attach", refused)
    one = container(privileged=False)
    one._arrange_group()
    assert one.spec["capabilities"] == CHOWN
    assert not one._any_device
    assert one.record["shortfalls"] == [
        "it does not get CAP_MKNOD: its devices cannot be limited: bpf: Operation not permitted"
    ]


def test_the_privileged_have_all_devices_anyhow() -> None:
    one = container(privileged=True)
    one._arrange_group()
    assert one.spec["capabilities"] == devices.MKNOD | CHOWN
    assert one._any_device
    assert one.record["shortfalls"] == []
