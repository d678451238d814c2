"""Pod as a resource: its schema, its selectors, its form on the wire."""

from collections.abc import Iterator

import msgspec
import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import ContainerStatus, PodStatus
from kedge.api.core_v1.references import ResourceFieldSelector
from kedge.api.resource import enc_hook
from kedge.machinery.schema import Schema
from kedge.testing.pods import new_pod, pod_document


def types(node: Schema, seen: dict[str, Schema]) -> dict[str, Schema]:
    """Every named type below a schema."""
    if node.name and node.name in seen:
        return seen
    if node.name:
        seen[node.name] = node
    for child in (*node.fields.values(), *([node.items] if node.items else [])):
        types(child, seen)
    return seen


def undescribed(node: Schema) -> Iterator[str]:
    for name, field in node.fields.items():
        if not field.description:
            yield f"{node.name}.{name}"


def test_every_field_of_every_type_is_described() -> None:
    known = types(RESOURCE.schema, {})
    assert len(known) > 125
    assert [field for node in known.values() for field in undescribed(node)] == []


def test_lists_are_merged_by_the_keys_that_patches_rely_on() -> None:
    spec = RESOURCE.schema.fields["spec"].fields
    assert spec["containers"].merge_key == "name"
    assert spec["volumes"].retain_keys
    assert spec["tolerations"].list_type == "atomic"
    assert spec["nodeSelector"].atomic
    container = spec["containers"].items
    assert container is not None
    assert container.fields["ports"].list_keys == ("containerPort", "protocol")
    assert container.fields["volumeMounts"].merge_key == "mountPath"


def test_zeros_that_kubernetes_writes_out_are_written_out() -> None:
    assert msgspec.to_builtins(ContainerStatus(name="a"), enc_hook=enc_hook) == {
        "name": "a",
        "state": {},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }
    reference = ResourceFieldSelector(resource="limits.cpu")
    assert msgspec.to_builtins(reference, enc_hook=enc_hook) == {
        "resource": "limits.cpu",
        "divisor": "0",
    }


def test_a_stored_pod_reads_back_as_it_was() -> None:
    pod = new_pod(container={"resources": {"limits": {"cpu": "1"}}})
    stored = msgspec.json.encode(RESOURCE.to_document(pod))
    assert RESOURCE.to_document(RESOURCE.decode(stored)) == RESOURCE.to_document(pod)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spec.nodeName", "n1"),
        ("spec.host", "n1"),
        ("spec.hostNetwork", "true"),
        ("spec.restartPolicy", "Always"),
        ("spec.schedulerName", "default-scheduler"),
        ("spec.serviceAccountName", "robot"),
        ("status.phase", "Pending"),
        ("status.podIP", ""),
    ],
)
def test_pods_are_selected_by_fields(field: str, value: str) -> None:
    spec = {"nodeName": "n1", "hostNetwork": True, "serviceAccountName": "robot"}
    assert RESOURCE.presentation.fields[field](new_pod(spec=spec)) == value


def test_the_address_is_selected_by_either_name() -> None:
    status = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
    pod = RESOURCE.from_document(pod_document() | {"status": status})
    assert RESOURCE.presentation.fields["status.podIP"](pod) == "10.0.0.1"


def test_new_pods_are_pending_whatever_was_written() -> None:
    pod = RESOURCE.strategy.prepare_for_create(Pod(status=PodStatus(phase="Running")))
    assert (pod.status.phase, pod.status.qosClass) == ("Pending", "BestEffort")


WHOLE = {
    "metadata": {"name": "a", "namespace": "b", "managedFields": [{"manager": "m"}]},
    "spec": {
        "nodeName": "n",
        "restartPolicy": "Never",
        "schedulerName": "s",
        "serviceAccountName": "robot",
        "hostNetwork": True,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
    },
    "status": {
        "phase": "Running",
        "nominatedNodeName": "m",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
    },
}


@pytest.mark.parametrize("document", [WHOLE, {}, {"spec": {}, "status": {}}])
def test_field_selectors_read_the_same_of_the_part_as_of_the_whole(document: object) -> None:
    body = msgspec.json.encode(document)
    part, whole = RESOURCE.decode_fields(body), RESOURCE.decode(body)
    assert part != whole
    for name, read in RESOURCE.presentation.fields.items():
        assert read(part) == read(whole), name
