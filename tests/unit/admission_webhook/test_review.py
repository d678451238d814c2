"""AdmissionReviews: what is read of them, and how they are answered."""

import base64
import json
from typing import Any

import pytest
from tests.unit.admission_webhook import reviews

from kedge.admission_webhook.review import Verdict, answer, read
from kedge.machinery.errors import StatusError, forbidden

HEAD = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
REQUEST = {"uid": "u", "operation": "CREATE", "resource": {"version": "v1", "resource": "pods"}}


def test_a_review_is_read() -> None:
    request = {**REQUEST, "subResource": "resize", "namespace": "shop", "oldObject": {"a": 1}}
    read_ = read(json.dumps({**HEAD, "request": {**request, "dryRun": True}}).encode())
    assert (read_.uid, read_.sub_resource, read_.namespace) == ("u", "resize", "shop")
    assert (read_.object, read_.old_object) == (None, {"a": 1})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"a":' * 100_000,
        json.dumps({**HEAD, "request": {**REQUEST, "object": {"a": [[]] * 300_000}}}).encode(),
        json.dumps(HEAD).encode(),
        json.dumps({**HEAD, "request": {**REQUEST, "uid": ""}}).encode(),
        json.dumps({**HEAD, "request": {**REQUEST, "uid": "u" * 300}}).encode(),
        json.dumps({**HEAD, "request": {**REQUEST, "object": []}}).encode(),
        json.dumps({**HEAD, "apiVersion": "admission.k8s.io/v1beta1", "request": REQUEST}).encode(),
        json.dumps({**HEAD, "kind": "Pod", "request": REQUEST}).encode(),
    ],
)
def test_anything_else_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        read(body)
    assert caught.value.code == 400
    assert len(caught.value.message) < 1000


def test_a_change_is_answered_as_a_patch() -> None:
    document = {"metadata": {"name": "a"}}
    told = response(document, Verdict(changed={"metadata": {"name": "b"}}))
    assert (told["allowed"], told["patchType"]) == (True, "JSONPatch")
    assert json.loads(base64.b64decode(told["patch"])) == [
        {"op": "replace", "path": "/metadata/name", "value": "b"}
    ]
    assert response(document, Verdict(changed=document)) == {"uid": "u-1", "allowed": True}


def test_a_refusal_has_its_status() -> None:
    told = response({}, Verdict(forbidden("", "pods", "web", "no")))
    assert told["allowed"] is False
    assert told["status"]["code"] == 403
    assert told["status"]["message"] == 'pods "web" is forbidden: no'


def test_warnings_are_few_and_short() -> None:
    told = response(
        {}, Verdict(warnings=["a" * 1000, *("b" for _ in range(9)), *map(str, range(99))])
    )
    assert len(told["warnings"]) == 16
    assert max(map(len, told["warnings"])) == 256


def response(document: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    review = answer(reviews.of_pod(document), verdict)
    assert {key: review[key] for key in HEAD} == HEAD
    found: dict[str, Any] = review["response"]
    return found
