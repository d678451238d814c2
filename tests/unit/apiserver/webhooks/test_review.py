"""AdmissionReviews: what is told, and what an answer may look like."""

from typing import Any

import msgspec
import pytest

from kedge.api.core_v1 import config_map
from kedge.api.core_v1.pod import pod
from kedge.api.model import Document, ObjectMeta
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.request import Request, User
from kedge.apiserver.webhooks import review
from kedge.web.message import HttpRequest

NODE = User("system:node:n", ("system:nodes",), "u1", (("a.example/b", ("c",)),))


def request(
    method: str, verb: str, *, query: str = "", body: bytes = b"", part: str = ""
) -> Request:
    http = HttpRequest(method, "/", query, {"content-type": "application/json"}, body)
    return Request(http, NODE, pod.RESOURCE, verb, "ns", "p", part)


def answer(response: Any, version: str = "v1") -> bytes:
    head = {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}"}
    return msgspec.json.encode(head | {"response": response})


def test_user_is_told_with_everything_known_of_it() -> None:
    about = review.subject(Attempt(request("POST", "create"), "CREATE", pod.Pod()))
    told = review.description(about, pod.RESOURCE)
    assert told["userInfo"] == {
        "username": "system:node:n",
        "uid": "u1",
        "groups": ["system:nodes"],
        "extra": {"a.example/b": ["c"]},
    }


def test_object_of_a_subresources_own_kind_is_told_as_such() -> None:
    eviction = Document(
        apiVersion="policy/v1",
        kind="Eviction",
        metadata=ObjectMeta(name="p", namespace="ns"),
        content={"deleteOptions": {"gracePeriodSeconds": 1}},
    )
    about = review.subject(Attempt(request("POST", "create", part="eviction"), "CREATE", eviction))
    told = review.description(about, pod.RESOURCE)
    assert told["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert told["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert told["subResource"] == "eviction"
    document = review.document_of(pod.RESOURCE, eviction)
    assert document is not None
    assert document["apiVersion"] == "policy/v1"
    assert document["deleteOptions"] == {"gracePeriodSeconds": 1}


@pytest.mark.parametrize(("query", "body"), [("dryRun=All", b""), ("", b'{"dryRun": ["All"]}')])
def test_dry_run_of_a_deletion_is_seen_in_query_and_body(query: str, body: bytes) -> None:
    asked = request("DELETE", "delete", query=query, body=body)
    about = review.subject(Attempt(asked, "DELETE", None, pod.Pod()))
    assert about.dry_run
    assert about.options == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "dryRun": ["All"],
    }


def test_nulls_in_an_answer_are_what_is_left_out() -> None:
    body = answer(
        {
            "uid": "u",
            "allowed": True,
            "status": None,
            "patch": None,
            "patchType": None,
            "warnings": None,
            "auditAnnotations": None,
        }
    )
    assert review.read(body, "v1", "u", mutating=True) == review.AdmissionVerdict(allowed=True)


def test_an_answer_adds_so_many_warnings_and_annotations_at_most() -> None:
    response = {
        "uid": "u",
        "allowed": True,
        "warnings": [""] * 5_000,
        "auditAnnotations": {f"k{i}": "" for i in range(5_000)},
    }
    answer = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
    verdict = review.read(msgspec.json.encode(answer), "v1", "u", mutating=False)
    assert (len(verdict.warnings), len(verdict.annotations)) == (1_000, 1_000)


def test_answer_without_its_kind_is_refused() -> None:
    body = msgspec.json.encode({"response": {"uid": "u", "allowed": True}})
    with pytest.raises(review.Invalid) as error:
        review.read(body, "v1", "u", mutating=False)
    assert str(error.value) == (
        "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
    )


def test_older_version_is_read_in_good_faith() -> None:
    body = msgspec.json.encode({"response": {"allowed": True, "patch": "W10="}})
    verdict = review.read(body, "v1beta1", "u", mutating=True)
    assert (verdict.patch, verdict.patch_type) == (b"[]", "JSONPatch")
    assert review.read(body, "v1beta1", "u", mutating=False).patch == b""


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (None, 400, "denied the request without explanation"),
        ({"reason": "Because"}, 400, "denied the request: Because"),
        ({"message": "no", "reason": "Because", "code": 409}, 409, "denied the request: no"),
        ({"message": "no", "code": 302}, 400, "denied the request: no"),
        ({"message": "no", "code": 99999}, 400, "denied the request: no"),
    ],
)
def test_refusals_always_have_a_code_and_a_sentence(status: Any, code: int, message: str) -> None:
    error = review.denial("h", status)
    assert (error.code, error.message) == (code, f'admission webhook "h" {message}')


def test_details_of_a_refusal_survive_as_far_as_they_make_sense() -> None:
    details = {
        "name": "x",
        "causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "spec"}],
        "retryAfterSeconds": 7,
    }
    status = review.denial("h", {"code": 429, "details": details}).status()
    assert status["details"] == details
    odd = review.denial("h", {"details": {"causes": "?", "retryAfterSeconds": "soon"}})
    assert odd.status()["status"] == "Failure"


def test_name_of_a_new_object_is_the_one_it_has_now() -> None:
    renamed = config_map.ConfigMap(metadata=ObjectMeta(name="after", namespace="ns"))
    about = review.subject(Attempt(request("POST", "create"), "CREATE", renamed))
    assert about.name == "after"
