"""The label that lets a node follow its local volumes."""

from typing import Any

import pytest

from kedge.controllers.volumes.persistent_volume_binder import PersistentVolumeBinder
from kedge.testing.controllers import workshop

VOLUMES = "/api/v1/persistentvolumes"


def volume(driver: str, *hosts: str) -> dict[str, Any]:
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": driver, "volumeHandle": "h"},
    }
    if hosts:
        terms = [{"matchExpressions": [rule]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"metadata": {"name": "pv"}, "spec": spec}


@pytest.mark.parametrize(
    ("driver", "hosts", "labels"),
    [
        ("local.kedge.dev", ["host-1"], {"kedge.dev/node": "n1"}),
        ("local.kedge.dev", ["host-1", "host-2"], {}),
        ("local.kedge.dev", ["gone"], {}),
        ("local.kedge.dev", [], {}),
        ("disk.example.com", ["host-1"], {}),
    ],
)
async def test_a_volume_without_its_label_gets_it(
    driver: str, hosts: list[str], labels: dict[str, str]
) -> None:
    async with workshop(PersistentVolumeBinder) as place:
        for number in (1, 2):
            named = {"kubernetes.io/hostname": f"host-{number}"}
            node = {"metadata": {"name": f"n{number}", "labels": named}}
            await place.create("/api/v1/nodes", node)
        await place.create(VOLUMES, volume(driver, *hosts))
        found = await place.server.get(f"{VOLUMES}/pv")
        assert found["metadata"].get("labels", {}) == labels
        assert found["status"]["phase"] == "Available"
