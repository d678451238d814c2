import json

import pytest

from kedge.cli.backup.portable import UnreadableObject, coming, documents, moving, normal_form
from kedge.storage.store import StoreEntry


def entry(key: str, value: bytes = b"{}", created: int = 2) -> StoreEntry:
    return StoreEntry(f"/registry/{key}", value, created + 5, created)


def test_objects_move_in_the_order_of_their_creation_without_events_and_notes_of_servers() -> None:
    entries = [
        entry("pods/default/a", created=7),
        entry("events/default/e", created=3),
        entry("masterleases/10.0.0.1"),
        entry("ranges/servicenodeports"),
        entry("namespaces/default", created=3),
    ]
    assert [each.key for each in moving(entries)] == [
        "/registry/namespaces/default",
        "/registry/pods/default/a",
    ]


def test_rights_that_nodes_need_on_a_kube_apiserver_do_not_come_back() -> None:
    entries = [
        entry("clusterroles/kedge:node"),
        entry("clusterroles/kedge:nodes-of-mine"),
        entry("clusterrolebindings/kedge:node"),
        entry("events/default/e"),
    ]
    assert [each.key for each in coming(entries)] == ["/registry/clusterroles/kedge:nodes-of-mine"]


def test_a_value_of_go_gets_the_form_of_kedge() -> None:
    value = (
        b'{"metadata":{"name":"a","resourceVersion":"7","uid":"u"},"data":{"x":"1"},'
        b'"apiVersion":"v1","kind":"ConfigMap"}\n'
    )
    assert normal_form(entry("configmaps/default/a", value)) == (
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u"},"data":{"x":"1"}}'
    )


def test_a_value_of_kedge_stays_as_it_is() -> None:
    value = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"x":1.50}}'
    assert json.loads(normal_form(entry("configmaps/default/a", value))) == json.loads(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"k8s\0\n\x0c", "is stored as protobuf: .*--storage-media-type=application/json"),
        (b"k8s:enc:aesgcm:v1:key:xyz", "is encrypted: .*identity"),
        (b"{", "is not JSON"),
        (b"[]", "is not an object of Kubernetes"),
        (b"{}", "is not an object of Kubernetes"),
    ],
)
def test_other_values_are_refused_with_their_key(value: bytes, words: str) -> None:
    with pytest.raises(UnreadableObject, match=f"/registry/secrets/default/s {words}"):
        normal_form(entry("secrets/default/s", value))


def test_documents_for_people_have_no_fields_of_the_server() -> None:
    value = (
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u",'
        b'"creationTimestamp":"t","generation":1,"managedFields":[],"ownerReferences":'
        b'[{"uid":"o"}]},"data":{"x":"1"},"status":{}}'
    )
    owned = b'{"metadata":{"name":"b","ownerReferences":[{"uid":"o","controller":true}]}}'
    entries = [entry("configmaps/default/a", value), entry("pods/default/b", owned)]
    [document] = documents(entries)
    assert list(document) == ["apiVersion", "kind", "metadata", "data"]
    assert document["metadata"] == {"name": "a"}
