from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.client.alike_pods import MOST, AlikePods


def made(name: str, owner: str = "set", **status: Any) -> Pod:
    token = f"kube-api-access-{name}"
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    meta = {
        "name": name,
        "uid": f"uid-{name}",
        "labels": {"app": "web"},
        "ownerReferences": [{"uid": owner, "kind": "ReplicaSet"}] if owner else [],
        "managedFields": [{"manager": "m", "operation": "Update"}],
    }
    spec = {
        "nodeName": "n",
        "containers": [{"name": "c", "volumeMounts": [{"name": token, "mountPath": "/t"}]}],
        "volumes": [{"name": token, "projected": {"sources": [source]}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }
    conditions = [{"type": "Ready", "status": "True"}]
    whole = {"phase": "Running", "podIP": f"ip-{name}", "conditions": conditions} | status
    return RESOURCE.from_document({"metadata": meta, "spec": spec, "status": whole})


def plain(pod: Pod) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, managedFields=()))


def test_pods_of_one_owner_share_equal_parts() -> None:
    alike = AlikePods()
    first, second = alike.trimmed(made("a")), alike.trimmed(made("b"))
    assert first == plain(made("a"))
    assert second == plain(made("b"))
    assert second.metadata.labels is first.metadata.labels
    assert second.metadata.ownerReferences is first.metadata.ownerReferences
    assert second.spec.tolerations is first.spec.tolerations
    assert second.spec.volumes[0].projected is first.spec.volumes[0].projected
    assert second.spec.volumes[0].name == "kube-api-access-b"
    assert second.status.conditions is first.status.conditions


@pytest.mark.parametrize(
    "other",
    [
        made("b", owner="other"),
        made("b", owner=""),
        made("b", phase="Pending", conditions=[]),
        made("b", conditions=[{"type": "Ready", "status": "False"}]),
        replace(made("b"), spec=replace(made("b").spec, volumes=(), tolerations=())),
        replace(made("b"), metadata=replace(made("b").metadata, labels={})),
    ],
)
def test_a_pod_that_differs_stays_as_it_is(other: Pod) -> None:
    alike = AlikePods()
    first = alike.trimmed(made("a"))
    assert alike.trimmed(other) == plain(other)
    assert first == plain(made("a"))


def test_pods_without_an_owner_share_with_those_of_their_namespace() -> None:
    alike = AlikePods()
    first, second = alike.trimmed(made("a", owner="")), alike.trimmed(made("b", owner=""))
    assert second.metadata.labels is first.metadata.labels
    elsewhere = made("c", owner="")
    other = replace(elsewhere, metadata=replace(elsewhere.metadata, namespace="other"))
    assert alike.trimmed(other).metadata.labels is not first.metadata.labels


def test_few_owners_are_remembered() -> None:
    alike = AlikePods()
    pods = [alike.trimmed(made("a", owner=str(number))) for number in range(MOST + 1)]
    assert alike.trimmed(made("b", owner="1")).metadata.labels is pods[1].metadata.labels
    assert alike.trimmed(made("b", owner="0")).metadata.labels is not pods[0].metadata.labels
