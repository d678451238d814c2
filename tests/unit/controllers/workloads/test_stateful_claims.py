"""With whom the claims of a StatefulSet go."""

from typing import Any

import pytest

from kedge.api.apps_v1.stateful_set import RESOURCE, StatefulSet
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.controllers.workloads.stateful_claims import wanted_owners

INSIDE = PODS.from_document({"metadata": {"name": "web-0", "uid": "pod-0"}})
OUTSIDE = PODS.from_document({"metadata": {"name": "web-1", "uid": "pod-1"}})


def stateful_set(deleted: str, scaled: str) -> StatefulSet:
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    spec = {"replicas": 1, "persistentVolumeClaimRetentionPolicy": policy}
    return RESOURCE.from_document({"metadata": {"name": "web", "uid": "set"}, "spec": spec})


def reference(kind: str, name: str, uid: str, **more: Any) -> dict[str, Any]:
    version = "v1" if kind == "Pod" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, **more}


def claim(*owners: dict[str, Any]) -> PersistentVolumeClaim:
    return CLAIMS.from_document(
        {"metadata": {"name": "data-web-0", "ownerReferences": list(owners)}}
    )


@pytest.mark.parametrize(
    ("deleted", "scaled", "inside", "outside"),
    [
        ("Retain", "Retain", None, None),
        ("Delete", "Retain", "set", "set"),
        ("Retain", "Delete", None, "pod-1"),
        ("Delete", "Delete", "set", "pod-1"),
    ],
)
def test_a_claim_goes_with_the_set_or_with_the_pod_that_is_not_wanted_any_more(
    deleted: str, scaled: str, inside: str | None, outside: str | None
) -> None:
    owner = stateful_set(deleted, scaled)
    for pod, expected in ((INSIDE, inside), (OUTSIDE, outside)):
        found = wanted_owners(owner, pod, claim())
        assert (found[0].uid if found else None) == expected


def test_what_was_ours_and_is_to_be_kept_now_is_let_go() -> None:
    owned = claim(reference("StatefulSet", "web", "set", controller=True))
    assert wanted_owners(stateful_set("Retain", "Retain"), INSIDE, owned) == []


@pytest.mark.parametrize("kind_and_name", [("StatefulSet", "web"), ("Pod", "web-0")])
def test_a_claim_of_an_earlier_set_or_pod_is_left_alone(kind_and_name: tuple[str, str]) -> None:
    stale = claim(reference(*kind_and_name, "earlier", controller=True))
    assert wanted_owners(stateful_set("Delete", "Delete"), INSIDE, stale) is None


def test_what_somebody_else_manages_is_not_taken() -> None:
    other = reference("Operator", "o", "other", controller=True)
    ours = reference("StatefulSet", "web", "set")
    policy = stateful_set("Delete", "Delete")
    assert wanted_owners(policy, INSIDE, claim(other)) is None
    (kept,) = wanted_owners(policy, INSIDE, claim(other, ours)) or ()
    assert kept.uid == "other"
