from kedge.api.core_v1.config_map import RESOURCE, ConfigMap
from kedge.api.model import Document
from kedge.api.resource import STATUS, Resource


def test_the_kind_is_the_name_of_the_type() -> None:
    assert (RESOURCE.kind, RESOURCE.singular, RESOURCE.typed) == ("ConfigMap", "configmap", True)


def test_a_custom_kind_is_a_document() -> None:
    widgets = Resource(
        type=Document, plural="widgets", kind="Widget", group="a.com", subresources=(STATUS,)
    )
    written = {"kind": "Widget", "apiVersion": "a.com/v1", "metadata": {"name": "w"}, "spec": {}}
    assert widgets.to_document(widgets.from_document(written)) == written
    assert (widgets.typed, widgets.has_status) == (False, True)
    assert widgets.subresource("status") is STATUS
    assert widgets.subresource("scale") is None


def test_documents_carry_kind_and_version() -> None:
    document = RESOURCE.to_document(ConfigMap(data={"a": "b"}))
    assert document == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}, "data": {"a": "b"}}
    assert RESOURCE.from_document(document).data == {"a": "b"}
    assert RESOURCE.decode(b'{"data":{"a":"b"}}').data == {"a": "b"}
