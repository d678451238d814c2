"""The four patch types: each makes the desired document from the live one.

A patch is parsed once and applied as often as the write conflicts with others (`write.modify`). So
a Patch is a function of the live document, with no state of its own. The three older types need a
live object; only an apply may create one, since its configuration is a whole object.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from kedge.api.resource import Resource
from kedge.apiserver import body, managed, prepare
from kedge.apiserver.media import PATCHES, body_type
from kedge.apiserver.object_versions import ObjectVersions
from kedge.apiserver.request import Request, check_write_options
from kedge.apiserver.verbs import decode, type_meta
from kedge.apiserver.verbs.unreadable_document import UnreadableDocument
from kedge.machinery import go_integers, patch, patch_text, strategic
from kedge.machinery.errors import (
    FieldError,
    StatusError,
    bad_request,
    invalid,
    unsupported_media_type,
)
from kedge.machinery.go_json_syntax import older_syntax_error
from kedge.machinery.shape import json_type

Ignored = Callable[[Resource[Any]], dict[str, Any]]


class DesiredDocument(msgspec.Struct, frozen=True):
    """The document that a write wants to store."""

    document: dict[str, Any]
    applied: bool = False
    """Whether its managedFields are final, as after a server-side apply."""


class PatchScope(msgspec.Struct, frozen=True):
    """The endpoint and the time of a patch, which decide about the owners of fields."""

    subresource: str
    ignored: Ignored
    now: str
    versions: ObjectVersions | None = None


class Patch(msgspec.Struct, frozen=True):
    """A parsed patch."""

    produce: Callable[[dict[str, Any] | None, PatchScope], DesiredDocument]
    """Returns the desired document, made from the live one."""
    may_create: bool = False
    """Whether the object may be missing."""
    is_versionless: bool = True
    """Whether the version of the live object has an effect only if the patch sets it."""


def read_patch(request: Request) -> Patch:
    """Return the patch in the request's body; 415 for a type that the resource does not take."""
    return _READERS[patch_sort(request)](request)


def patch_sort(request: Request) -> str:
    """Return which of the four types a patch has; raises errors of the type and its options."""
    content_type = body_type(request.http.headers.get("content-type", ""))
    sort = PATCHES.get(content_type)
    if sort is None or not _takes(request.resource, sort):
        offered = [name for name, kind in PATCHES.items() if _takes(request.resource, kind)]
        if content_type not in PATCHES and not request.resource.custom:
            why = "415: Unsupported Media Type"
            raise StatusError(415, "UnsupportedMediaType", why, details={})
        raise unsupported_media_type(content_type, offered)
    check_write_options(request, "PatchOptions", _option_errors(request, sort))
    return sort


def _option_errors(request: Request, sort: str) -> Iterator[FieldError]:
    """Yield errors of options whose rules depend on the type of the patch."""
    if sort == "apply":
        if not request.query.get("fieldManager"):
            yield FieldError.required("fieldManager", "is required for apply patch")
    elif "force" in request.query:
        yield FieldError.forbidden("force", "may not be specified for non-apply patch")


def _takes(resource: Resource[Any], sort: str) -> bool:
    return not (resource.custom and sort == "strategic")


def _json(request: Request) -> Patch:
    with _decoding():
        operations = _decoded(request.http.body, list, "[]handlers.jsonPatchOp") or []
        operations = [_operation(each) for each in operations]
    return _on_live(
        request,
        lambda live: _not_too_deep(patch.apply_json(live, operations)),
        quote=lambda live: patch_text.after_json(_in_order(request, live), request.http.body),
        # Operations may test the version, or copy it.
        is_versionless=False,
    )


def _operation(given: Any) -> dict[str, Any]:
    """Return an operation of a JSON patch; 400 in Go's words if it does not have its types."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise bad_request(body.unmarshal_fault(given, "handlers.jsonPatchOp"))
    for name in ("op", "path", "from"):
        if not isinstance(given.get(name), str | None):
            kind = json_type(given[name])
            where = f"Go struct field jsonPatchOp.{name} of type string"
            raise bad_request(f"json: cannot unmarshal {kind} into {where}")
    return given


_MAP = "map[string]interface {}"


def _decoded(data: bytes, wanted: type, go_type: str) -> Any:
    """Return the JSON of a patch; 400 in upstream's words if it is no JSON of that type."""
    try:
        value = body.decode_json(data)
    except body.UnreadableBody as error:
        why = older_syntax_error(data)
        raise bad_request(why or error.message.removeprefix(body.JSON_FAULT)) from None
    if value is not None and not isinstance(value, wanted):
        raise bad_request(body.unmarshal_fault(value, go_type))
    return value


@contextmanager
def _decoding() -> Iterator[None]:
    try:
        yield
    except StatusError as error:
        raise bad_request(f"error decoding patch: {error.message}") from None


def _read_object(data: bytes) -> body.Body:
    """Return the object of a patch, empty for null."""
    try:
        return body.read_json(data)
    except body.UnreadableBody:
        if _decoded(data, dict, _MAP) is None:
            return body.Body({}, [])
        raise


def _not_too_deep(changed: Any) -> Any:
    """Check the depth: operations that copy can nest deeper than the patch and the live object."""
    body.check_depth(changed)
    return changed


def _merge(request: Request) -> Patch:
    with _decoding():
        read = _settled(request, _read_object(request.http.body))
    if request.http.body.strip() == b"null":
        raise bad_request("Invalid JSON Patch")
    return _on_live(
        request,
        lambda live: patch.apply_merge(live, read.document),
        read.duplicates,
        quote=lambda live: patch_text.after_merge(_in_order(request, live), request.http.body),
    )


def _strategic(request: Request) -> Patch:
    read = _settled(request, _read_object(request.http.body))
    schema = request.resource.schema
    patched = body.whole_numbers(request.http.body, read.document)
    # Kind and apiVersion of a strategic patch have no effect.
    own = {"kind": request.resource.kind, "apiVersion": request.resource.api_version}
    for name in own:
        if isinstance(patched.get(name), str | None):
            patched.pop(name, None)

    def change(live: dict[str, Any]) -> Any:
        return own | strategic.apply(schema, live, patched)

    return _on_live(
        request, change, read.duplicates, quote=lambda live: patch.printed(patched), restores=True
    )


def _settled(request: Request, read: body.Body) -> body.Body:
    """Return the patch with the spellings of fields that the live object has."""
    if request.resource.extensions is not None:
        request.resource.extensions.settle(read.document)
    return read


def _on_live(
    request: Request,
    change: Callable[[dict[str, Any]], Any],
    duplicates: Sequence[str] = (),
    *,
    quote: Callable[[dict[str, Any]], str],
    restores: bool = False,
    is_versionless: bool = True,
) -> Patch:
    """Return a patch of the live object. An error about the changed one quotes it, or a strategic
    patch, whose result is restored from a document that is parsed already."""

    def produce(live: dict[str, Any] | None, scope: PatchScope) -> DesiredDocument:
        assert live is not None
        changed = _attempt(lambda: change(live))
        if not isinstance(changed, dict):
            raise bad_request("the patch does not leave an object")
        if not changed.get("apiVersion") and not request.resource.custom:
            # Upstream reads such a document into a type that none of its fields fit.
            unknown = [name for name in changed if name not in ("kind", "apiVersion")]
            request.warnings += [f'unknown field "{name}"' for name in unknown]
            raise prepare.nameless(request)
        try:
            if request.resource.custom:
                type_meta.check_patched(request.resource, changed, lambda: quote(live))
            fitted = decode.parsed(request, changed, "PatchOptions", duplicates, live)
        except UnreadableDocument as error:
            whole = go_integers.converted(request.resource.schema, changed) if restores else changed
            if error.restored and whole != changed:
                return DesiredDocument(decode.parsed(request, whole, "PatchOptions", (), live))
            why = (restores and error.restored) or error.why
            errors = [FieldError.invalid("patch", quote(live)[:MOST_QUOTED], why)]
            raise invalid("", "", "", errors) from None
        return DesiredDocument(fitted)

    return Patch(produce, is_versionless=is_versionless)


def _in_order(request: Request, live: dict[str, Any]) -> dict[str, Any]:
    # Imported here because only errors need the table of all types.
    from kedge.api.builtin.field_order import in_order

    if not request.resource.custom:
        return in_order(live, request.resource.schema)
    by_name: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(live, order="sorted"))
    return by_name


MOST_QUOTED = 64 << 10
"""Characters of the patched object that an error quotes."""


def _attempt(change: Callable[[], Any]) -> Any:
    try:
        return change()
    except RecursionError:
        raise bad_request("the patch nests too deeply") from None
    except patch.PatchMalformed as error:
        raise bad_request(str(error)) from None
    except patch.PatchTooLong as error:
        raise StatusError(413, "RequestEntityTooLarge", str(error)) from None
    except patch.PatchFailed:
        # Upstream keeps the reason to itself, and clients compare with this very answer.
        why = "the server rejected our request due to an error in our request"
        raise StatusError(422, "Invalid", why, details={}) from None
    except patch.PatchError as error:
        raise StatusError(500, "", str(error)) from None


def _apply(request: Request) -> Patch:
    manager = request.query.get("fieldManager")
    read = _read_config(request)
    config = _canonical(request, body.whole_numbers(request.http.body, read.document))

    def settle(document: dict[str, Any]) -> dict[str, Any]:
        try:
            return decode.fitted(request, document, "PatchOptions", read.duplicates)
        except UnreadableDocument as error:
            if not error.restored or request.resource.custom:
                raise
            whole = go_integers.converted(request.resource.schema, document)
            if whole == document:
                raise managed.unconvertible(document, error.restored) from None
            return settle(whole)

    def produce(live: dict[str, Any] | None, scope: PatchScope) -> DesiredDocument:
        merged = managed.apply(
            request.resource.schema,
            live,
            config,
            manager=manager,
            force=request.query.flag("force"),
            api_version=request.resource.api_version,
            subresource=scope.subresource,
            now=scope.now,
            ignore=scope.ignored(request.resource),
            settle=settle,
            versions=scope.versions,
        )
        return DesiredDocument(merged, applied=True)

    return Patch(produce, may_create=True)


def _read_config(request: Request) -> body.Body:
    read = _json_or_yaml(request.http.body)
    config = read.document
    resource = request.resource
    if not config.get("apiVersion") or not config.get("kind"):
        raise _of_another_type(config)
    if (config["kind"], config["apiVersion"]) != (resource.kind, resource.api_version):
        raise _of_another_type(config)
    meta = config.get("metadata")
    if meta is None:
        meta = config["metadata"] = {}
    if not isinstance(meta, dict):
        return read  # apply itself refuses it
    if meta.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    meta.pop("managedFields", None)
    name = meta.get("name", request.name)
    if name == "":
        raise prepare.nameless(request)
    if isinstance(name, str) and name != request.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({request.name})"
        )
    return read


def _of_another_type(config: dict[str, Any]) -> StatusError:
    named = [config.get(key) for key in ("apiVersion", "kind")]
    version, kind = (each if isinstance(each, str) else "" for each in named)
    if version.count("/") > 1:
        version = kind = ""
    group, _, version = version.rpartition("/")
    return bad_request(f"invalid object type: {group}/{version}, Kind={kind}")


def _json_or_yaml(data: bytes) -> body.Body:
    """Try JSON first: kubectl sends it, and it is read faster. YAML may begin with a brace, too."""
    if data.lstrip()[:1] == b"{":
        try:
            return body.read_json(data)
        except StatusError:
            pass
    try:
        return body.read_yaml(data)
    except body.UnreadableBody as error:
        raise bad_request(f"error decoding YAML: {_as_of_yaml(error.message)}") from None


def _as_of_yaml(fault: str) -> str:
    """Return a fault as upstream words it for an apply, whose object has no type yet."""
    if fault.startswith(body.JSON_FAULT):
        what = fault.removeprefix(body.JSON_FAULT).partition(" of type ")[0]
        return f"error unmarshaling JSON: while decoding JSON: {what} of type {_MAP}"
    return f"error converting YAML to JSON: {fault}"


def _canonical(request: Request, config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with lists in place of mappings that only kedge takes.

    Quantities and times stay as they are spelled: `1000m` conflicts with another's `1`, as with
    kube-apiserver. Nulls and empty values stay, too: an applier that names them wants the field,
    empty.
    """
    unknown: list[str] = []
    try:
        shaped = decode.shape(request.resource, config, unknown)
    except UnreadableDocument:
        return config  # apply itself names each value of another type
    mapped = decode.mappings(unknown)
    request.warnings += mapped
    # Undeclared fields are left in: apply itself refuses them, naming each.
    return _with_empty(shaped, config) if mapped and len(unknown) == len(mapped) else config


def _with_empty(shaped: Any, config: Any) -> Any:
    """Return a shaped value with the null and empty members of the original."""
    if type(shaped) is dict and type(config) is dict:
        result = {
            name: _with_empty(inner, config[name]) if name in config else inner
            for name, inner in shaped.items()
        }
        for name, inner in config.items():
            if name not in result and _is_empty(inner):
                result[name] = inner
        return result
    if type(shaped) is list and type(config) is list:
        return list(map(_with_empty, shaped, config))
    return shaped


def _is_empty(value: Any) -> bool:
    """Whether a value is null, or a list or map that holds nothing else."""
    if type(value) is dict:
        return all(map(_is_empty, value.values()))
    return value is None or value == []


_READERS = {"json": _json, "merge": _merge, "strategic": _strategic, "apply": _apply}
