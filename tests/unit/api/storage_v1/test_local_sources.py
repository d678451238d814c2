"""What local volumes begin with."""

from typing import Any

import pytest

from kedge.api.core_v1.persistent_volume_claim import RESOURCE, PersistentVolumeClaim
from kedge.api.storage_v1.local_sources import source_claim, source_refusal


def claim(**source: Any) -> PersistentVolumeClaim:
    spec = {"dataSourceRef": source} if source else {}
    return RESOURCE.from_document({"metadata": {"name": "c", "namespace": "default"}, "spec": spec})


@pytest.mark.parametrize(
    ("source", "name", "is_refused"),
    [
        ({}, "", False),
        ({"kind": "PersistentVolumeClaim", "name": "a"}, "a", False),
        ({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "default"}, "a", False),
        ({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "other"}, "", True),
        ({"kind": "VolumeSnapshot", "name": "a", "apiGroup": "snapshot.storage.k8s.io"}, "", True),
    ],
)
def test_only_claims_of_the_namespace_are_copied(
    source: dict[str, str], name: str, is_refused: bool
) -> None:
    assert source_claim(claim(**source)) == name
    assert bool(source_refusal(claim(**source))) is is_refused
