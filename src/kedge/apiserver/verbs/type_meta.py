"""Kind and apiVersion of a document: those of the URL, or an error in upstream's words.

Documents of built-in kinds may leave them out. Upstream decodes a built-in kind that the URL does
not name, and fails to convert it; objects of custom kinds keep what they name, and are validated.
"""

from collections.abc import Callable
from typing import Any

from kedge.api.resource import Resource
from kedge.apiserver.verbs.unreadable_document import (
    UnreadableDocument,
    UntypedDocument,
    unreadable_as,
)
from kedge.machinery.errors import FieldError, StatusError, bad_request, invalid
from kedge.machinery.schema import Schema
from kedge.machinery.shape import TypeMismatch, json_type

JSON_FAULT = "couldn't get version/kind; json parse error: json: "


def check(resource: Resource[Any], document: dict[str, Any]) -> None:
    """Refuse a document of a built-in kind that names another kind or version."""
    kind = document.get("kind") or resource.kind
    version = document.get("apiVersion") or resource.api_version
    if kind == resource.kind and version == resource.api_version:
        return
    _check_types(document)
    # Imported here because only errors need the table.
    from kedge.api.builtin import registered_kinds as kinds

    if kinds.is_registered(resource.group, version, kind):
        if kind == resource.kind:
            raise _of_version(resource, version)
        own = kinds.go_type(version, kind)
        wanted = kinds.internal_type(resource.group, resource.kind)
        why = f"converting ({own}) to ({wanted}): unknown conversion"
    else:
        scheme = kinds.scheme(resource.group)
        why = f'no kind "{kind}" is registered for version "{version}" in scheme "{scheme}"'
    raise unreadable_as(resource, _last(version), kind, why)


def check_delete_options(document: dict[str, Any]) -> None:
    """Refuse the body of a delete that is of another kind. Its apiVersion is not looked at."""
    try:
        _check_types(document)
    except UntypedDocument as error:
        raise bad_request(error.why) from None
    kind = document.get("kind") or "DeleteOptions"
    if kind == "DeleteOptions":
        return
    version = document.get("apiVersion") or "meta.k8s.io/v1"
    if (version, kind) in _META_KINDS:
        raise bad_request(f"converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion")
    scheme = "pkg/apis/meta/internalversion/scheme/register.go:27"
    raise bad_request(
        f'no kind "{kind}" is registered for version "{version}" in scheme "{scheme}"'
    )


_META_KINDS = frozenset(
    [("v1", kind) for kind in ("Status", "APIVersions", "APIGroup", "APIGroupList")]
    + [
        ("meta.k8s.io/v1", kind)
        for kind in ("ListOptions", "GetOptions", "CreateOptions", "UpdateOptions", "PatchOptions")
    ]
)
"""Kinds that upstream reads in place of DeleteOptions before it refuses them."""


def check_custom(resource: Resource[Any], document: dict[str, Any], text: str, name: str) -> None:
    """Refuse a body of a custom kind without a kind, or of another kind or version. An update,
    which has a name, complains first about another name."""
    _check_types(document)
    if not document.get("kind"):
        raise _without_kind(text)
    version = document.get("apiVersion") or ""
    if version != resource.api_version:
        raise _of_version(resource, version)
    if document["kind"] != resource.kind and name in ("", _name(document)):
        raise _invalid(resource, document)


def check_patched(
    resource: Resource[Any], document: dict[str, Any], text: Callable[[], str]
) -> None:
    """Refuse a patched object of a custom kind that has no kind, or another kind or version."""
    _check_types(document)
    if not document.get("kind"):
        raise _without_kind(text())
    version = document.get("apiVersion") or resource.api_version
    if (document["kind"], version) != (resource.kind, resource.api_version):
        raise _invalid(resource, document)


def _check_types(document: dict[str, Any]) -> None:
    for name, value in document.items():
        if name in ("kind", "apiVersion") and not isinstance(value, str | None):
            said = f"cannot unmarshal {json_type(value)} into Go struct field .{name}"
            mismatch = TypeMismatch(None, value, Schema(type="string"))
            raise UntypedDocument(f"{JSON_FAULT}{said} of type string", mismatch.restored)
    version = document.get("apiVersion") or ""
    if version.count("/") > 1:
        raise UntypedDocument(f"unexpected GroupVersion string: {version}")


def _without_kind(text: str) -> UnreadableDocument:
    return UntypedDocument(f"Object 'Kind' is missing in '{text}'")


def _of_version(resource: Resource[Any], version: str) -> UnreadableDocument:
    why = (
        f"the API version in the data ({version}) does not match the expected API version "
        f"({resource.api_version})"
    )
    return UnreadableDocument(why, why)


def _invalid(resource: Resource[Any], document: dict[str, Any]) -> StatusError:
    errors = []
    version, kind = document.get("apiVersion") or "", document["kind"]
    if kind != resource.kind:
        errors.append(FieldError.invalid("kind", kind, f"must be {resource.kind}"))
    if version != resource.api_version:
        why = f"must be {resource.api_version}"
        errors.append(FieldError.invalid("apiVersion", version, why))
    return invalid(version.rpartition("/")[0], kind, _name(document), errors)


def _name(document: dict[str, Any]) -> str:
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else ""
    return name if isinstance(name, str) else ""


def _last(api_version: str) -> str:
    return api_version.rpartition("/")[2]
