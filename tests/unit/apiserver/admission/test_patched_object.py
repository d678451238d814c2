import pytest
from msgspec.structs import replace

from kedge.api.core_v1 import config_map
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.admission.patched_object import fitted, settled
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.request import Request
from kedge.machinery.errors import StatusError
from kedge.web.message import HttpRequest

RESOURCE = config_map.RESOURCE
HEAD = {"kind": "ConfigMap", "apiVersion": "v1"}


def attempt() -> Attempt:
    meta = {"name": "c", "namespace": "default", "uid": "u", "generation": 0}
    obj = RESOURCE.from_document({"metadata": meta})
    request = Request(HttpRequest("POST", "/"), ADMIN, RESOURCE, "create", "default", "c")
    return Attempt(request, "CREATE", obj)


def test_unknown_fields_are_named_and_left_out() -> None:
    unknown: list[str] = []
    document = HEAD | {"metadata": {"name": "c"}, "data": {"a": "b"}, "zz": 1}
    assert fitted(RESOURCE, document, unknown) == HEAD | {
        "metadata": {"name": "c"},
        "data": {"a": "b"},
    }
    assert unknown == ["zz"]


def test_a_document_must_be_an_object_of_its_kind() -> None:
    with pytest.raises(StatusError):
        fitted(RESOURCE, [1], [])
    with pytest.raises(StatusError):
        fitted(RESOURCE, HEAD | {"kind": "Secret"}, [])


def changed(**metadata: str) -> Object:
    before = attempt().object
    assert before is not None
    return replace(before, metadata=replace(before.metadata, **metadata))


def test_fields_of_the_server_stay() -> None:
    result = settled(attempt(), changed(uid="other", resourceVersion="7"))
    assert result.metadata.uid == "u"
    assert result.metadata.resourceVersion == ""


def test_the_namespace_cannot_change() -> None:
    with pytest.raises(StatusError):
        settled(attempt(), changed(namespace="other"))
