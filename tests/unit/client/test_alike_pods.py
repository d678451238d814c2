from typing import Any
from weakref import ref

import msgspec
import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.client.alike_pods import LONGEST_ADDRESS, MOST, AlikePods


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


def with_version(pod: Pod, version: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, resourceVersion=version))


def test_a_state_that_a_reader_has_is_the_same_object_for_the_next() -> None:
    alike = AlikePods()
    first = alike.trimmed(with_version(made("a"), "3"))
    assert alike.trimmed(with_version(made("a"), "3")) is first


def test_a_reader_that_lags_gets_its_own_state_and_then_the_shared_one() -> None:
    alike = AlikePods()
    newest = alike.trimmed(with_version(made("a"), "10"))
    late = with_version(made("a", phase="Pending"), "9")
    assert alike.trimmed(late) == plain(late)
    assert alike.trimmed(with_version(made("a"), "10")) is newest


def test_a_former_state_that_comes_with_the_newest_version_stays_as_it_is() -> None:
    alike = AlikePods()
    newest = alike.trimmed(with_version(made("a"), "3"))
    left = with_version(made("a", phase="Failed"), "3")
    assert alike.trimmed(left) == plain(left)
    assert newest == plain(with_version(made("a"), "3"))


def test_a_state_that_no_reader_has_is_not_kept() -> None:
    alike = AlikePods()
    gone = ref(alike.trimmed(with_version(made("a"), "3")))
    alike.trimmed(made("b"))  # now the one with which the next of the owner are compared
    assert gone() is None


def test_states_of_a_pod_share_its_name_and_uid() -> None:
    alike = AlikePods()
    first = alike.trimmed(with_version(decoded("a"), "3"))
    second = alike.trimmed(with_version(decoded("a", phase="Failed"), "4"))
    assert second.metadata.name is first.metadata.name
    assert second.metadata.uid is first.metadata.uid


def decoded(name: str, **status: Any) -> Pod:
    pod: Pod = RESOURCE.decode(msgspec.json.encode(made(name, **status)))
    return pod


def test_containers_share_all_but_their_own_ids() -> None:
    resources = {"requests": {"cpu": "10m"}}
    state = {"name": "c", "image": "app:1", "resources": resources, "state": {"running": {}}}
    alike = AlikePods()
    first, second = (
        alike.trimmed(made(name, containerStatuses=[state | {"containerID": name}]))
        for name in "ab"
    )
    one, other = first.status.containerStatuses[0], second.status.containerStatuses[0]
    assert (one.containerID, other.containerID) == ("a", "b")
    assert other.resources is one.resources
    assert other.state is one.state


def test_addresses_are_kept_once() -> None:
    alike = AlikePods()
    addresses: dict[str, Any] = {
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}],
        "podIPs": [{"ip": "ip-a"}],
    }
    first = alike.trimmed(made("a", **addresses))
    second = alike.trimmed(made("b", owner="other", **addresses))
    assert second.status.hostIPs is first.status.hostIPs
    assert first.status.podIPs[0].ip is first.status.podIP
    both = [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]
    dual = alike.trimmed(made("c", **addresses | {"hostIPs": both}))
    assert [each.ip for each in dual.status.hostIPs] == ["10.0.0.1", "fd00::1"]


def test_texts_that_are_no_addresses_are_not_kept() -> None:
    long = "1" * (LONGEST_ADDRESS + 1)
    alike = AlikePods()
    one, same = (
        alike.trimmed(made(name, owner=name, hostIP=long, hostIPs=[{"ip": long}])) for name in "ab"
    )
    assert same.status.hostIPs == one.status.hostIPs
    assert same.status.hostIPs is not one.status.hostIPs
