"""Decisions about volumes, as a table."""

from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.persistent_volume_claim import RESOURCE, PersistentVolumeClaim
from kedge.api.storage_v1 import persistent_volume
from kedge.api.storage_v1.persistent_volume import PersistentVolume
from kedge.controllers.volumes.volume_steps import reclaim, volume_step

OURS = {"pv.kubernetes.io/provisioned-by": "kedge.dev/local"}
THEIRS = {"pv.kubernetes.io/provisioned-by": "csi.example"}


def volume(
    uid: str | None = "u1", annotations: dict[str, str] | None = None, **spec: Any
) -> PersistentVolume:
    if uid is not None:
        spec["claimRef"] = {"namespace": "default", "name": "c", "uid": uid}
    meta = {"name": "pv", "annotations": annotations or {}}
    return persistent_volume.decode(msgspec.json.encode({"metadata": meta, "spec": spec}))


def claim(name: str = "", uid: str = "u1", mode: str = "Filesystem") -> PersistentVolumeClaim:
    meta = {"name": "c", "namespace": "default", "uid": uid}
    return RESOURCE.from_document(
        {"metadata": meta, "spec": {"volumeName": name, "volumeMode": mode}}
    )


@pytest.mark.parametrize(
    ("found", "known", "phase", "action"),
    [
        (volume(None), None, "Available", "none"),
        (volume(""), None, "Available", "look at claim"),
        (volume(), None, "Released", "reclaim"),
        (volume(), claim("pv", uid="u2"), "Released", "reclaim"),
        (volume(), claim(), "", "look at claim"),
        (volume(), claim(mode="Block"), "", "report mode"),
        (volume(), claim("pv"), "Bound", "none"),
        (volume(), claim("other"), "", "unbind"),
        (
            volume(annotations=THEIRS, persistentVolumeReclaimPolicy="Delete"),
            claim("other"),
            "Released",
            "reclaim",
        ),
    ],
)
def test_the_phase_of_a_volume_and_what_follows(
    found: PersistentVolume, known: PersistentVolumeClaim | None, phase: str, action: str
) -> None:
    step = volume_step(found, known)
    assert (step.phase, step.action.value) == (phase, action)


@pytest.mark.parametrize(
    ("policy", "annotations", "spec", "decision", "message"),
    [
        ("Retain", OURS, {}, "keep", ""),
        ("Delete", OURS, {}, "delete object", ""),
        ("Delete", THEIRS, {"csi": {"driver": "csi.example"}}, "keep", ""),
        ("Delete", {}, {"csi": {"driver": "local.kedge.dev"}}, "delete object", ""),
        ("Delete", {}, {"local": {"path": "/x"}}, "fail", "no volume plugin matched"),
        ("Delete", {}, {"hostPath": {"path": "/x"}}, "fail", "only supports /tmp/.+"),
        ("Delete", {}, {"hostPath": {"path": "/tmp/x"}}, "fail", "kedge does not delete"),
        ("Recycle", {}, {}, "fail", "No recycler plugin found for the volume!"),
    ],
)
def test_the_reclaim_policy_of_a_released_volume(
    policy: str, annotations: dict[str, str], spec: dict[str, Any], decision: str, message: str
) -> None:
    found = reclaim(volume(annotations=annotations, persistentVolumeReclaimPolicy=policy, **spec))
    assert found.reclaim.value == decision
    assert message in found.message
