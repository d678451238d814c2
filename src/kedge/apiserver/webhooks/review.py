"""AdmissionReview: the request that a webhook gets for a write, and the parsing of its answer."""

import base64
import binascii
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.model import Document, Object
from kedge.api.resource import Resource
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.request import User
from kedge.apiserver.verbs.delete import read_options
from kedge.machinery.errors import StatusCause, StatusError

_GROUP = "admission.k8s.io"
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}


class Unreadable(Exception):
    """The answer is no AdmissionReview."""


class Invalid(Exception):
    """The answer is an AdmissionReview that breaks the rules."""


class GroupVersionKind(NamedTuple):
    """A kind in its version."""

    group: str
    version: str
    kind: str


class ReviewSubject(msgspec.Struct, frozen=True):
    """A write as webhooks see it; the objects come with each review."""

    resource: Resource[Any]
    subresource: str
    kind: GroupVersionKind
    operation: str
    name: str
    namespace: str
    """Also that of a Namespace object: its own name."""
    user: User
    options: Mapping[str, Any] | None
    own_kind: bool
    """Whether the object is of the resource's kind, not of one that only its subresource has."""

    @property
    def dry_run(self) -> bool:
        return bool(self.options and self.options.get("dryRun"))

    def kind_in(self, view: Resource[Any]) -> GroupVersionKind:
        """Return the object's kind as seen through another version of the resource."""
        return GroupVersionKind(view.group, view.version, view.kind) if self.own_kind else self.kind


def subject(attempt: Attempt) -> ReviewSubject:
    """Return the subject of an attempt."""
    request = attempt.request
    resource = request.resource
    kind = GroupVersionKind(resource.group, resource.version, resource.kind)
    obj = attempt.object
    foreign = isinstance(obj, Document) and obj.kind not in ("", resource.kind)
    if foreign and obj is not None:
        group, _, version = obj.apiVersion.rpartition("/")
        kind = GroupVersionKind(group, version, obj.kind)
    name = request.name or (obj.metadata.name if obj is not None else "")
    if attempt.operation == "CREATE" and obj is not None and not foreign:
        name = obj.metadata.name
    is_namespace = resource.plural == "namespaces" and not resource.group
    return ReviewSubject(
        resource=resource,
        subresource=request.subresource,
        kind=kind,
        operation=attempt.operation,
        name=name,
        namespace=name if is_namespace else request.namespace,
        user=request.user,
        options=_options(attempt),
        own_kind=not foreign,
    )


def _options(attempt: Attempt) -> dict[str, Any] | None:
    request = attempt.request
    if attempt.operation == "CONNECT":
        return None
    kind = _OPTIONS.get(attempt.operation, "DeleteOptions")
    head = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if kind == "DeleteOptions" and request.verb in ("delete", "deletecollection"):
        options: dict[str, Any] = head | msgspec.to_builtins(read_options(request))
    else:
        query = request.query
        names = ("fieldManager", "fieldValidation")
        options = head | {name: query.get(name) for name in names if query.get(name)}
    dry = [*options.get("dryRun", ()), *request.query.all("dryRun")]
    return options | ({"dryRun": ["All"]} if any(dry) else {})


def document_of(resource: Resource[Any], obj: Object | None) -> dict[str, Any] | None:
    """An object as the resource's clients see it; one of a foreign kind as it is."""
    if obj is None:
        return None
    if isinstance(obj, Document) and obj.kind not in ("", resource.kind):
        head = {"kind": obj.kind, "apiVersion": obj.apiVersion}
        document = head | {"metadata": msgspec.to_builtins(obj.metadata)} | obj.content
    else:
        document = resource.to_document(obj)
    # By way of JSON: an object's own document may share parts with it and hold tuples.
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return plain


async def seen_as(
    document: dict[str, Any], resource: Resource[Any], view: Resource[Any]
) -> dict[str, Any]:
    """A resource's document in the version of another view of the same objects."""
    if view is resource:
        return document
    if resource.conversion is not None:
        return await resource.conversion.document(document, view.api_version)
    if resource.custom:
        # Strategy None: fields that the other version lacks are shown too.
        return document | {"apiVersion": view.api_version}
    if resource.store_as is not None:
        document = resource.store_as.to_stored(document)
    if view.store_as is not None:
        document = view.store_as.from_stored(document)
    return document | {"kind": view.kind, "apiVersion": view.api_version}


def description(about: ReviewSubject, view: Resource[Any]) -> dict[str, Any]:
    """An AdmissionRequest, but for its uid and the objects."""
    return {
        "kind": about.kind_in(view)._asdict(),
        "resource": _resource(view),
        **({"subResource": about.subresource} if about.subresource else {}),
        "requestKind": about.kind._asdict(),
        "requestResource": _resource(about.resource),
        **({"requestSubResource": about.subresource} if about.subresource else {}),
        **({"name": about.name} if about.name else {}),
        **({"namespace": about.namespace} if about.namespace else {}),
        "operation": about.operation,
        "userInfo": _user(about.user),
        "dryRun": about.dry_run,
        "options": about.options,
    }


def _resource(resource: Resource[Any]) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _user(user: User) -> dict[str, Any]:
    info = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra},
    }
    return {key: value for key, value in info.items() if value}


def encode(version: str, uid: str, request: Mapping[str, Any]) -> bytes:
    """The body that is posted to a webhook."""
    return msgspec.json.encode(
        {
            "kind": "AdmissionReview",
            "apiVersion": f"{_GROUP}/{version}",
            "request": {"uid": uid, **request},
        }
    )


# Answers. As in Kubernetes, null is read as empty.


class _Status(msgspec.Struct):
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: dict[str, Any] | None = None


class _Response(msgspec.Struct):
    uid: str | None = None
    allowed: bool | None = None
    status: _Status | None = None
    patch: str | None = None
    patchType: str | None = None  # noqa: N815
    warnings: list[str] | None = None
    auditAnnotations: dict[str, str] | None = None  # noqa: N815


class _Review(msgspec.Struct):
    kind: str | None = None
    apiVersion: str | None = None  # noqa: N815
    response: _Response | None = None


_reviews = msgspec.json.Decoder(_Review)


class AdmissionVerdict(msgspec.Struct, frozen=True):
    """The decision of a webhook."""

    allowed: bool
    patch: bytes = b""
    patch_type: str = ""
    status: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    weight: int = 0
    """Bytes of the question and the answer."""


MOST_WARNINGS: Final = 1_000
"""Warnings of one answer that are looked at; far fewer fit into a response."""
MOST_ANNOTATIONS: Final = 1_000
"""Audit annotations of one answer; further ones are left out."""


def read(body: bytes, version: str, uid: str, *, mutating: bool) -> AdmissionVerdict:
    """The verdict in an answer; raises Unreadable or Invalid."""
    try:
        review = _reviews.decode(body)
    except msgspec.ValidationError as error:
        raise Unreadable(f"json: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"couldn't get version/kind; json parse error: {error}") from None
    response = review.response
    if response is None:
        raise Invalid("webhook response was absent")
    try:
        patch = base64.b64decode(response.patch or "", validate=True)
    except (binascii.Error, ValueError):
        raise Unreadable("illegal base64 data in response.patch") from None
    if version == "v1":
        _check_identity(review, response, uid)
        _check_patch(response, patch, mutating=mutating)
        patch_type = response.patchType or ""
    else:
        # The older version left all of this to good faith.
        patch = patch if mutating else b""
        patch_type = "JSONPatch" if patch else ""
    return AdmissionVerdict(
        allowed=bool(response.allowed),
        patch=patch,
        patch_type=patch_type,
        status=None if response.status is None else msgspec.to_builtins(response.status),
        warnings=tuple((response.warnings or ())[:MOST_WARNINGS]),
        annotations=tuple(islice((response.auditAnnotations or {}).items(), MOST_ANNOTATIONS)),
    )


def _check_identity(review: _Review, response: _Response, uid: str) -> None:
    if response.uid != uid:
        raise Invalid(f'expected response.uid="{uid}", got {_quoted(response.uid or "")}')
    group, _, version = (review.apiVersion or "").rpartition("/")
    if (group, version, review.kind) != (_GROUP, "v1", "AdmissionReview"):
        got = f"{group}/{version}, Kind={review.kind or ''}"
        raise Invalid(f"expected webhook response of {_GROUP}/v1, Kind=AdmissionReview, got {got}")


def _check_patch(response: _Response, patch: bytes, *, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise Invalid("validating webhook may not return response.patch")
        if response.patchType is not None:
            raise Invalid("validating webhook may not return response.patchType")
    elif patch and response.patchType is None:
        raise Invalid("webhook returned response.patch but not response.patchType")
    elif not patch and response.patchType is not None:
        raise Invalid("webhook returned response.patchType but not response.patch")
    elif response.patchType == "":
        raise Invalid('webhook returned invalid response.patchType of ""')


def _quoted(text: str) -> str:
    return msgspec.json.encode(text[:256]).decode()


def denial(hook: str, status: Mapping[str, Any] | None) -> StatusError:
    """The error with which a request ends that a webhook refused."""
    status = status or {}
    by = f'admission webhook "{hook}" denied the request'
    why = status.get("message") or status.get("reason")
    message = f"{by}: {why}" if why else f"{by} without explanation"
    code = status.get("code") or 0
    details = dict(status.get("details") or {})
    causes = details.pop("causes", None)
    retry_after = details.pop("retryAfterSeconds", 0)
    return StatusError(
        code if 400 <= code <= 599 else 400,
        status.get("reason") or "",
        message,
        details=details or None,
        causes=_causes(causes),
        retry_after=max(0, retry_after) if isinstance(retry_after, int) else 0,
    )


def _causes(written: Any) -> list[StatusCause]:
    try:
        return msgspec.convert(written or [], list[StatusCause])
    except msgspec.ValidationError:
        return []
