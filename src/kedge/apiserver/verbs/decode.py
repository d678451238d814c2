"""Bodies to objects: the right kind, only declared fields, the right types."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from kedge.api.model import Object, ObjectMeta
from kedge.api.resource import Resource
from kedge.api.structs import schema_of
from kedge.apiserver import body
from kedge.apiserver.api import Api
from kedge.apiserver.crd.defaulting import without_nulls
from kedge.apiserver.crd.pruning import prune
from kedge.apiserver.request import Request, check_write_options, field_validation
from kedge.apiserver.verbs import type_meta
from kedge.apiserver.verbs.unreadable_document import UntypedDocument, unreadable, unrecognized
from kedge.machinery import extensions
from kedge.machinery.errors import too_large
from kedge.machinery.schema import Schema
from kedge.machinery.shape import AsMapping, TypeMismatch, UnknownFields, fit

_META = Schema(type="object", fields={"metadata": schema_of(ObjectMeta)})
"""The metadata, which is the same in objects of every kind, custom ones too."""


async def posted(api: Api, request: Request, options: str) -> dict[str, Any]:
    """Return the document in the request's body, reduced to declared fields."""
    return await api.long_work.run(len(request.http.body), _posted, request, options)


def posted_small(request: Request, options: str) -> dict[str, Any]:
    """Return the same for a kind that is never stored; raises 413 if the body is large."""
    if len(request.http.body) > body.SMALL:
        raise too_large(body.SMALL)
    return _posted(request, options)


async def read(api: Api, request: Request, options: str) -> body.Body:
    """Return the body of a request that is not reduced yet, for `of_content`."""
    return await api.long_work.run(len(request.http.body), _read, request, options)


def _posted(request: Request, options: str) -> dict[str, Any]:
    return of_content(request, _read(request, options), options)


def _read(request: Request, options: str) -> body.Body:
    data = request.http.body
    content_type = request.http.headers.get("content-type", "")
    body.check_type(content_type)
    check_write_options(request, options)
    try:
        return body.read(content_type, data)
    except body.UnreadableBody as error:
        raise unrecognized(request.resource, error.message, data) from None


def of_content(request: Request, content: body.Body, options: str) -> dict[str, Any]:
    """Return the document of a body, reduced to declared fields."""
    data = request.http.body
    try:
        if request.resource.custom:
            text = data.decode(errors="replace")
            type_meta.check_custom(request.resource, content.document, text, request.name)
        return parsed(request, content.document, options, content.duplicates)
    except (body.UnreadableBody, UntypedDocument) as error:
        raise unrecognized(request.resource, error.message, data) from None


def parsed(
    request: Request,
    document: dict[str, Any],
    options: str,
    duplicates: Sequence[str] = (),
    live: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a document that upstream parses, a body or the result of a patch: `fitted`, and in a
    custom object without nulls that say nothing."""
    found = fitted(request, document, options, duplicates, live)
    return without_nulls(request.resource.schema, found) if request.resource.custom else found


def fitted(
    request: Request,
    document: dict[str, Any],
    options: str,
    duplicates: Sequence[str] = (),
    live: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the document reduced to the fields of its schema; fieldValidation decides whether
    others are an error, a warning or ignored. `live` is the object that a patch started from."""
    resource = request.resource
    if not resource.custom:
        type_meta.check(resource, document)
    unknown = UnknownFields(body.MAX_FINDINGS)
    shaped = shape(resource, document, unknown, live)
    request.warnings += mappings(unknown)
    findings = [f'unknown field "{path}"' for path in unknown if type(path) is not AsMapping]
    findings += duplicates
    _complain(request, findings, field_validation(request))
    # A controller that reports a status did not choose the extensions in the spec.
    if resource.extensions is not None and request.subresource != "status":
        request.warnings += map(extensions.warning, resource.extensions.find(shaped))
    return shaped


def mappings(unknown: Sequence[str]) -> list[str]:
    """Return the warnings about lists that are written as mappings."""
    return [extensions.warning(path) for path in unknown if type(path) is AsMapping]


def shape(
    resource: Resource[Any],
    document: dict[str, Any],
    unknown: list[str],
    live: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the declared part of a document; the paths of other fields are added to `unknown`."""
    try:
        if resource.custom:
            # Values of wrong types are left in: validation names them all, each with its path.
            pruned = prune(resource.schema, document, unknown)
            rest = {name: value for name, value in pruned.items() if name != "metadata"}
            return rest | fit(_META, {"metadata": pruned.get("metadata")}, unknown)
        spec = document.get("spec")
        if resource.typed and type(spec) is dict and _is_known_to_fit(resource, spec):
            rest = {name: value for name, value in document.items() if name != "spec"}
            fitted = _fit_around_owners(resource.schema, rest, live, unknown) | {"spec": spec}
        else:
            fitted = _fit_around_owners(resource.schema, document, live, unknown)
        if resource.extensions is not None:
            resource.extensions.settle(fitted)
        return fitted
    except TypeMismatch as misfit:
        name_types(misfit)
        if resource.custom:
            del misfit.way[0]  # the metadata is parsed alone
        raise unreadable(resource, str(misfit), misfit.restored) from None


def name_types(misfit: TypeMismatch) -> None:
    """Let the error name Go's types: that of the field, and the embedded ones on the way."""
    if misfit.owner is None:
        return
    # Imported here because only errors need the table.
    from kedge.api.builtin.go_types import go_path, go_type

    named = go_type(misfit.owner.name, misfit.member)
    for _ in range(misfit.levels):
        named = named.partition("]")[2]
    misfit.go_type = named or misfit.go_type
    misfit.way = [(owner, go_path(owner, name)) for owner, name in misfit.way]


def _fit_around_owners(
    schema: Schema, document: dict[str, Any], live: dict[str, Any] | None, unknown: list[str]
) -> dict[str, Any]:
    """Reduce a document, but not managedFields that come unchanged from the live object: they are
    large, and were checked when they were written."""
    meta = document.get("metadata")
    if live is None or type(meta) is not dict:
        return fit(schema, document, unknown)
    owners = meta.get("managedFields")
    if not owners or owners is not live["metadata"].get("managedFields"):
        return fit(schema, document, unknown)
    rest = {name: value for name, value in meta.items() if name != "managedFields"}
    fitted = fit(schema, document | {"metadata": rest}, unknown)
    fitted["metadata"]["managedFields"] = owners
    return fitted


REMEMBERED_LENGTH = 8192
"""Results for longer specs are not kept, so that clients cannot fill the memory."""


def _is_known_to_fit(resource: Resource[Any], spec: dict[str, Any]) -> bool:
    """Whether a spec has declared fields only, as found for another object of the template."""
    schema = resource.schema.fields.get("spec")
    encoded = msgspec.json.encode(spec)
    return schema is not None and len(encoded) < REMEMBERED_LENGTH and _fits(schema, encoded)


def forget_schemas() -> None:
    """Drop cached results. The schemas in their keys may no longer be served."""
    _fits.cache_clear()


@lru_cache(256)
def _fits(schema: Schema, encoded: bytes) -> bool:
    unknown: list[str] = []
    try:
        fitted = fit(schema, msgspec.json.decode(encoded), unknown)
    except TypeMismatch:
        return False
    return not unknown and msgspec.json.encode(fitted) == encoded


def to_object(resource: Resource[Any], document: dict[str, Any]) -> Object:
    """Return a document of declared fields as an object."""
    try:
        obj: Object = resource.from_document(document)
    except (msgspec.ValidationError, ValueError) as error:
        raise unreadable(resource, str(error)) from None
    return obj


def _complain(request: Request, findings: list[str], validation: str) -> None:
    if not findings or validation == "Ignore":
        return
    if validation == "Strict":
        raise unreadable(request.resource, f"strict decoding error: {', '.join(findings)}")
    request.warnings += findings
