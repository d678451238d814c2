"""AdmissionReview v1 as a webhook reads and answers it."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.machinery import container_count
from kedge.machinery.errors import StatusError, bad_request
from kedge.machinery.json_diff import operations

API_VERSION: Final = "admission.k8s.io/v1"
_UID_LENGTH: Final = 256
_WARNINGS: Final = 16
_WARNING_LENGTH: Final = 256
"""The API server cuts longer ones, and all of them at 4,096 characters."""


class ReviewResource(msgspec.Struct, frozen=True):
    """The group, version and plural of the object under review."""

    version: str
    resource: str
    group: str = ""


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The question of the API server, with the fields that this webhook uses."""

    uid: str
    resource: ReviewResource
    operation: str
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _AdmissionReview(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: ReviewRequest


_DECODER: Final = msgspec.json.Decoder(_AdmissionReview)


def read(body: bytes) -> ReviewRequest:
    """Return the request of a review; raise a StatusError (400) for anything else."""
    if container_count.has_too_many(body):
        raise bad_request(f"the body contains more than {container_count.MOST} lists and objects")
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not an AdmissionReview: {error}") from error
    if review.api_version != API_VERSION or review.kind != "AdmissionReview":
        what = f"{review.kind} of {review.api_version}"
        raise bad_request(
            f"this webhook answers AdmissionReview of {API_VERSION}, not {what[:200]}"
        )
    if not review.request.uid or len(review.request.uid) > _UID_LENGTH:
        raise bad_request(f"request.uid must have 1 to {_UID_LENGTH} characters")
    return review.request


class Verdict(msgspec.Struct, frozen=True):
    """The decision about a review."""

    refusal: StatusError | None = None
    changed: Mapping[str, Any] | None = None
    """The object as it is to be; None if it stays."""
    warnings: Sequence[str] = ()


ALLOWED: Final = Verdict()


def answer(request: ReviewRequest, verdict: Verdict) -> dict[str, Any]:
    """Return the review with the decision."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": verdict.refusal is None}
    if verdict.refusal is not None:
        response["status"] = verdict.refusal.status()
    elif patch := _patch(request.object, verdict.changed):
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if warnings := _short(verdict.warnings):
        response["warnings"] = warnings
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _patch(before: Any, after: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [] if after is None else list(operations(before, after))


def _short(warnings: Iterable[str]) -> list[str]:
    return [text[:_WARNING_LENGTH] for text in dict.fromkeys(warnings)][:_WARNINGS]
