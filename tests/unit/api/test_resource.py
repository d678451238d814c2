import msgspec
import pytest

from kedge.api.core_v1.config_map import RESOURCE, ConfigMap
from kedge.api.model import Document
from kedge.api.resource import STATUS, Resource, converted, tolerant


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


class Inner(msgspec.Struct, frozen=True):
    time: str = ""
    names: tuple[str, ...] = ()


class Outer(msgspec.Struct):
    inner: Inner = Inner()
    parts: list[Inner] = []
    kept: int | None = 1


decode = tolerant(msgspec.json.Decoder(Outer))


def test_null_stands_for_a_value_that_is_not_set() -> None:
    assert decode(b'{"inner": {"time": null, "names": null}, "parts": null}') == Outer()
    assert decode(b'{"inner": null, "parts": [{"time": null}]}') == Outer(parts=[Inner()])


def test_null_is_kept_where_the_type_knows_it() -> None:
    assert decode(b'{"kept": null}') == Outer(kept=None)


def test_a_value_of_another_type_is_still_refused() -> None:
    with pytest.raises(
        msgspec.ValidationError, match=r"Expected `str`, got `int` - at `\$.inner.time`"
    ):
        decode(b'{"inner": {"time": 1, "names": null}}')
    with pytest.raises(msgspec.DecodeError, match="malformed"):
        decode(b"{]")


def test_bytes_without_nulls_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgspec.json, "decode", pytest.fail)
    assert decode(b'{"inner": {"time": "now"}}') == Outer(Inner("now"))


def test_a_parsed_document_is_converted_likewise() -> None:
    assert converted({"inner": {"names": None}}, Outer) == Outer()
