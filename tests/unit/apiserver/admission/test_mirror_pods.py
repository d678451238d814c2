from typing import Any

import pytest

from kedge.api.core_v1.pod.validation import MIRROR_POD
from kedge.apiserver.admission.mirror_pods import is_mirror, reference
from kedge.testing.pods import new_pod


def test_a_mirror_pod_is_known_by_its_annotation() -> None:
    assert is_mirror(new_pod(metadata={"annotations": {MIRROR_POD: "hash"}}))
    assert not is_mirror(new_pod(metadata={"annotations": {"other": "hash"}}))


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, ""),
        ({"serviceAccountName": "bot"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "pull"}]}, "secrets"),
        ({"volumes": [{"name": "v", "configMap": {"name": "m"}}]}, "configmaps"),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, ""),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "persistentvolumeclaims",
        ),
        (
            {
                "volumes": [
                    {
                        "name": "v",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
                    }
                ]
            },
            "serviceaccounts (via projected volumes)",
        ),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]}, "resourceclaims"),
    ],
)
def test_references_to_objects_of_the_api_are_named(spec: dict[str, Any], found: str) -> None:
    annotations = {MIRROR_POD: "hash"}
    assert reference(new_pod(metadata={"annotations": annotations}, spec=spec)) == found
