"""ConversionReviews: the question to a conversion webhook, and the checks of its answer."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api import metadata
from kedge.apiserver import body
from kedge.machinery.container_count import has_too_many
from kedge.machinery.errors import FieldError, StatusError

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_GROUP: Final = "apiextensions.k8s.io"


class RejectedConversion(Exception):
    """An answer that cannot be used; the text is upstream's, without the name of the kind."""


class _Result(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""


class _ConversionResponse(msgspec.Struct, rename="camel"):
    uid: str = ""
    result: _Result = _Result()
    converted_objects: list[msgspec.Raw] | None = None


class _ConversionReview(msgspec.Struct, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    kind: str = ""
    response: _ConversionResponse | None = None


class OriginalObject(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """The parts of an object that a conversion must keep."""

    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] = {}


_reviews = msgspec.json.Decoder(_ConversionReview)
_originals = msgspec.json.Decoder(OriginalObject)


def original(encoded: bytes) -> OriginalObject:
    """Return the parts of an encoded object that its conversion must keep."""
    return _originals.decode(encoded)


def encode(version: str, uid: str, api_version: str, objects: Sequence[bytes]) -> bytes:
    """Return the question how encoded objects look in another version."""
    return (
        b'{"kind":"ConversionReview","apiVersion":"%b/%b","request":{"uid":"%b",'
        b'"desiredAPIVersion":"%b","objects":[%b]},"response":{"uid":"","convertedObjects":null,'
        b'"result":{"metadata":{}}}}'
        % (
            _GROUP.encode(),
            version.encode(),
            uid.encode(),
            api_version.encode(),
            b",".join(objects),
        )
    )


def read(answer: bytes, version: str, uid: str) -> list[msgspec.Raw]:
    """Return the objects in the answer of a webhook; raises RejectedConversion."""
    try:
        review = _reviews.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedConversion(f"failed: {error}") from None
    given = (review.api_version, review.kind)
    if version == "v1" and given != (f"{_GROUP}/v1", "ConversionReview"):
        group, _, short = review.api_version.rpartition("/")
        got = f"{group}/{short}, Kind={review.kind}"[:256]
        wanted = f"{_GROUP}/v1, Kind=ConversionReview"
        raise RejectedConversion(f"failed: expected webhook response of {wanted}, got {got}")
    response = review.response
    if response is None:
        raise RejectedConversion("failed: no response provided")
    if version == "v1" and response.uid != uid:
        got = msgspec.json.encode(response.uid[:256]).decode()
        raise RejectedConversion(f'failed: expected response.uid="{uid}", got {got}')
    if response.result.status != "Success":
        told = f"response.result.status was '{response.result.status[:256]}', not 'Success'"
        raise RejectedConversion(f"failed: {response.result.message[:4096] or told}")
    return response.converted_objects or []


def converted(before: OriginalObject, answer: msgspec.Raw, api_version: str) -> dict[str, Any]:
    """Return a converted object with the metadata of the original one; raises RejectedConversion.

    A webhook may change labels and annotations only, as upstream has it.
    """
    if has_too_many(bytes(answer)):
        raise _invalid("the object contains too many lists and objects")
    try:
        document = msgspec.json.decode(answer)
        body.check_depth(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(str(error)) from None
    except StatusError as error:
        raise _invalid(error.message) from None
    if not isinstance(document, dict):
        raise _invalid(f"expected an object, got {_go_type(document)}")
    given = document.get("apiVersion") or ""
    if given != api_version:
        told = f"invalid groupVersion (expected {api_version}, received {_shown(given)})"
        raise _invalid(told)
    if document.get("kind") != before.kind:
        kind = _shown(document.get("kind") or "")
        raise _invalid(f"invalid kind (expected {before.kind}, received {kind})")
    meta = document.get("metadata")
    _check_identity(before.metadata, meta if isinstance(meta, dict) else {})
    head = {"kind": before.kind, "apiVersion": api_version}
    rest = {k: v for k, v in document.items() if k not in ("kind", "apiVersion", "metadata")}
    return head | {"metadata": _restored(before.metadata, document)} | rest


_IDENTITY: Final = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))


def _check_identity(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for field, word in _IDENTITY:
        was, now = before.get(field, ""), after.get(field, "")
        if was != now:
            why = f"must have the same {word}: {was} != {_shown(now)}"
            raise RejectedConversion(f"returned invalid object: {why}")


def _restored(before: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    if "metadata" not in document:
        raise _invalid_metadata("missing metadata in converted object")
    meta = document["metadata"]
    if not isinstance(meta, dict):
        raise _invalid_metadata(f"invalid metadata of type {_go_type(meta)} in converted object")
    restored = dict(before)
    for field in ("labels", "annotations"):
        restored.pop(field, None)
        if (given := meta.get(field)) is not None:
            restored[field] = _texts(field, given, before.get(field) or {})
    return restored


def _texts(field: str, given: Any, before: Mapping[str, str]) -> dict[str, str]:
    """Return the labels or annotations of an answer; they are checked if they changed."""
    if not isinstance(given, dict):
        kind = _go_type(given)
        raise _invalid_metadata(f"invalid metadata.{field} of type {kind} in converted object")
    for key, value in given.items():
        if not isinstance(value, str):
            told = f"metadata.{field}[{_shown(key)}] must be a string, but is {_go_type(value)}"
            raise _invalid_metadata(f"{told} in converted object")
    if given != before and (errors := list(_text_errors(field, given))):
        texts = [str(error) for error in errors[:10]]
        raise _invalid_metadata(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    return given


def _text_errors(field: str, given: Mapping[str, str]) -> Sequence[FieldError]:
    if field == "labels":
        return list(metadata.validate_labels(given, "metadata.labels"))
    # Upstream names the path in the singular here.
    return list(metadata.validate_annotations(given, "metadata.annotation"))


def _invalid(why: str) -> RejectedConversion:
    return RejectedConversion(f"returned invalid object at index 0: {why}")


def _invalid_metadata(why: str) -> RejectedConversion:
    return RejectedConversion(f"returned invalid metadata: {why}")


def _shown(value: object) -> str:
    return str(value)[:256]


def _go_type(value: object) -> str:
    if value is None:
        return "<nil>"
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")
