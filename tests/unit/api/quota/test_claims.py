from typing import Any

import pytest

from kedge.api.core_v1.persistent_volume_claim import RESOURCE, PersistentVolumeClaim
from kedge.api.quota.claims import ClaimQuotaMeter

METER = ClaimQuotaMeter()


def claim(
    size: str = "1Gi", status: dict[str, Any] | None = None, beta: str | None = None, **spec: Any
) -> PersistentVolumeClaim:
    annotations = {} if beta is None else {"volume.beta.kubernetes.io/storage-class": beta}
    wanted = {"resources": {"requests": {"storage": size}}} | spec
    meta = {"name": "c", "annotations": annotations}
    return RESOURCE.from_document({"metadata": meta, "spec": wanted, "status": status or {}})


def shown(obj: PersistentVolumeClaim) -> dict[str, str]:
    return {name: str(amount) for name, amount in METER.measure(obj).usage.items()}


def test_storage_counts_in_total_and_by_class() -> None:
    assert shown(claim(storageClassName="gold")) == {
        "persistentvolumeclaims": "1",
        "count/persistentvolumeclaims": "1",
        "requests.storage": "1Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
    }


def test_a_claim_without_a_class_counts_only_in_total() -> None:
    assert shown(claim()) == {
        "persistentvolumeclaims": "1",
        "count/persistentvolumeclaims": "1",
        "requests.storage": "1Gi",
    }


def test_a_claim_must_specify_nothing() -> None:
    assert METER.missing(claim(), ["requests.storage"]) == ""


def test_the_annotated_class_wins_even_if_it_is_empty() -> None:
    assert "iron.storageclass.storage.k8s.io/requests.storage" in shown(
        claim(storageClassName="gold", beta="iron")
    )
    assert not [name for name in shown(claim(storageClassName="gold", beta="")) if "gold" in name]


def test_what_an_expansion_set_aside_counts_until_it_is_given_back() -> None:
    grown = {"allocatedResources": {"storage": "3Gi"}}
    assert shown(claim("1Gi", grown))["requests.storage"] == "3Gi"
    assert shown(claim("5Gi", grown))["requests.storage"] == "5Gi"
    assert shown(claim("3072Mi", grown))["requests.storage"] == "3Gi"
    assert shown(claim("3221225472", grown))["requests.storage"] == "3221225472"


def test_storage_counts_in_whole_bytes() -> None:
    assert shown(claim("1500m"))["requests.storage"] == "2"


def test_names_by_storage_class_belong_to_claims() -> None:
    names = [
        "a.b.storageclass.storage.k8s.io/requests.storage",
        "a.storageclass.storage.k8s.io/persistentvolumeclaims",
        "a.storageclass.storage.k8s.io/limits",
        "requests.cpu",
    ]
    assert METER.names(names) == set(names[:2])


@pytest.mark.parametrize(
    ("obj", "classes"),
    [
        (claim(), None),
        (claim(volumeAttributesClassName="silver"), ["silver"]),
        (
            claim(
                status={
                    "currentVolumeAttributesClassName": "silver",
                    "modifyVolumeStatus": {
                        "status": "InProgress",
                        "targetVolumeAttributesClassName": "gold",
                    },
                },
                volumeAttributesClassName="gold",
            ),
            ["gold", "silver"],
        ),
    ],
)
def test_a_claim_is_in_the_scope_of_every_attributes_class_it_touches(
    obj: PersistentVolumeClaim, classes: list[str] | None
) -> None:
    assert METER.measure(obj).scopes.get("VolumeAttributesClass") == classes
