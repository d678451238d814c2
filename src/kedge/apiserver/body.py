"""Request bodies: JSON, YAML or protobuf in, one plain document out."""

import json
import math
import re
from typing import Any, Final

import msgspec

from kedge.api.protobuf import decoder
from kedge.apiserver.media import ACCEPTED, body_type
from kedge.machinery import container_count
from kedge.machinery.errors import (
    StatusError,
    bad_request,
    too_large,
    unsupported_media_type,
)
from kedge.machinery.go_json_syntax import syntax_error
from kedge.machinery.shape import integral, json_type

MAX_DEPTH = 100
"""How deeply a body may be nested. No schema comes near, and the functions below are recursive."""


class Body(msgspec.Struct, frozen=True):
    """A document, and messages about keys that occur in it more than once."""

    document: dict[str, Any]
    duplicates: list[str]


def check_type(content_type: str) -> None:
    """Refuse bodies of types that are not read; 415."""
    is_broken = _PARAMETERS.fullmatch(content_type.partition(";")[2]) is None
    if is_broken or body_type(content_type) not in ("", *ACCEPTED):
        raise unsupported_media_type(content_type, ACCEPTED)


_PARAMETERS: Final = re.compile(r"\s*(?:[^\s;=]+=(?:[^\s;\"]+|\"[^\"]*\")\s*(?:;\s*|$))*")


def read(content_type: str, data: bytes) -> Body:
    """Return the document in a body of that type; raises 415 or 400."""
    match body_type(content_type):
        case "" | "application/json":
            # Go reads null into a value without changing it.
            return Body({}, []) if data.strip() == b"null" else read_json(data)
        case "application/yaml":
            return read_yaml(data)
        case "application/vnd.kubernetes.protobuf":
            return Body(_decoded_protobuf(data), [])
        case _:
            raise unsupported_media_type(content_type, ACCEPTED)


SMALL = 64 << 10
"""Largest size of bodies that are always small, such as the options of a delete."""


def read_small(content_type: str, data: bytes) -> Body:
    """Return the document in a small body, parsed on the event loop; raises 413, 415 or 400."""
    if len(data) > SMALL:
        raise too_large(SMALL)
    return read(content_type, data)


def read_json(data: bytes) -> Body:
    document = decode_json(data)
    if not isinstance(document, dict):
        raise _unparsable(unmarshal_fault(document, _TYPE_META))
    duplicates = _duplicates(data) if _may_repeat_keys(data, document) else []
    return Body(document, duplicates)


def decode_json(data: bytes) -> Any:
    """Return any JSON value; raises 400 or 413."""
    if container_count.has_too_many(data):
        raise too_many_containers()
    try:
        if _LARGE_INTEGER.search(data):
            value = json.loads(
                data, parse_int=_integer, parse_float=_finite, parse_constant=_no_constant
            )
            msgspec.json.encode(value)  # refuses half a surrogate pair, as the other decoder does
        else:
            value = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _unparsable(syntax_error(data) or syntax_fault(error)) from None
    _check_shape(data, value)
    return value


_TYPE_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)


class UnreadableBody(StatusError):
    """A body that is no document of its type: 400. Upstream names the expected kind, too."""

    def __init__(self, why: str) -> None:
        super().__init__(400, "BadRequest", why)


def _unparsable(why: str) -> StatusError:
    return UnreadableBody(f"{JSON_FAULT}{why}")


JSON_FAULT: Final = "couldn't get version/kind; json parse error: "


def syntax_fault(error: Exception) -> str:
    """Return the error of a JSON parser, in Go's words for a text that ends too early."""
    text = str(error)
    return "unexpected end of JSON input" if text == "Input data was truncated" else text


def unmarshal_fault(value: Any, go_type: str) -> str:
    """Return Go's error about a JSON value that is none of a type."""
    return f"json: cannot unmarshal {json_type(value)} into Go value of type {go_type}"


_LARGE_INTEGER = re.compile(rb"[:\[,\s]-?[0-9]{21}")
"""Finds numbers of more than 64 bits; may also match inside a string.

Parsing an integer takes quadratic time and does not release the interpreter: one body of such
numbers would block all requests for a third of a second. Upstream parses them as floats."""


def _integer(digits: str) -> float:
    if len(digits) <= 20:
        return int(digits)
    return _finite(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("Number out of range")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"invalid value {name}")


def read_yaml(data: bytes) -> Body:
    # Imported here because few clients send YAML and the server starts sooner without it.
    from kedge.machinery import yaml_text

    try:
        document, duplicates = yaml_text.read_strictly(data, depth=MAX_DEPTH)
    except yaml_text.YamlError as error:
        raise UnreadableBody(str(error)) from None
    document = {} if document is None else document
    if not isinstance(document, dict):
        raise _unparsable(unmarshal_fault(document, _TYPE_META))
    _check_shape(data, document)
    return Body(document, duplicates)


_REAL = re.compile(rb"[0-9](?:\.|[eE])[0-9+-]")


def whole_numbers(data: bytes, value: Any) -> Any:
    """Return the value of a body with integers in place of numbers such as 2.0.

    Go reads those as integers where it does not decode JSON into a type: after YAML, and in
    strategic patches."""
    return _whole(value) if _REAL.search(data) else value


def _whole(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _whole(inner) for name, inner in value.items()}
    if kind is list:
        return list(map(_whole, value))
    return integral(value) if kind is float else value


MAX_PATH = 16 << 10
"""Largest length of a field's path, in characters.

Errors and warnings name fields by their path, so a long path above many values is copied for
each: a megabyte of path above fifty thousand values filled fifty gigabytes of memory."""


def _check_shape(data: bytes, value: Any) -> None:
    if len(data) > MAX_PATH or data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        check_depth(value)


def check_depth(value: Any, left: int = MAX_DEPTH, room: int = MAX_PATH) -> None:
    """Refuse documents that are nested too deeply or have too long field paths."""
    if type(value) is dict:
        if not left:
            raise _too_deep()
        for name, inner in value.items():
            if type(inner) is dict or type(inner) is list:
                if len(name) > room:
                    why = f"has a field whose path is longer than {MAX_PATH} characters"
                    raise bad_request(f"the body of the request {why}")
                check_depth(inner, left - 1, room - len(name))
    elif type(value) is list:
        if not left:
            raise _too_deep()
        for inner in value:
            if type(inner) is dict or type(inner) is list:
                check_depth(inner, left - 1, room)


def too_many_containers() -> StatusError:
    most = container_count.MOST
    why = f"Request entity too large: the body contains more than {most} lists and objects"
    return StatusError(413, "RequestEntityTooLarge", why)


def _too_deep() -> StatusError:
    return bad_request(f"the body of the request is nested more than {MAX_DEPTH} levels deep")


def _decoded_protobuf(data: bytes) -> dict[str, Any]:
    try:
        document = decoder.decode(data)
    except ValueError as error:
        raise UnreadableBody(str(error)) from None
    check_depth(document)
    return document


def _may_repeat_keys(data: bytes, document: dict[str, Any]) -> bool:
    """Whether more keys were written than the document has; cheap, and sometimes wrong."""
    if b"\\u" in data:
        return _STRINGS.findall(data).count(b":") != _count_keys(document)
    # A quote and a colon are the end of a key, or part of a string. A string without numbered
    # escapes has as many quotes before colons when it is written again.
    again = msgspec.json.encode(document)
    return data.translate(None, _BLANKS).count(b'":') != again.translate(None, _BLANKS).count(b'":')


_BLANKS = b" \t\r\n"
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"\s*(:?)', re.DOTALL)
"""Matches each string of a JSON text, and the colon that makes it a key."""


def _count_keys(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum([_count_keys(v) for v in value.values() if type(v) in _HOLDERS])
    return sum([_count_keys(v) for v in value if type(v) in _HOLDERS])


_HOLDERS = frozenset((dict, list))


MAX_FINDINGS = 100
"""How many unknown or duplicate fields an error names, as in upstream's decoder."""


def _duplicates(data: bytes) -> list[str]:
    """Return messages about keys that occur twice in one object."""
    found: dict[str, None] = {}
    # Numbers are skipped: they do not matter here, and parsing large ones is slow.
    _walk(json.loads(data, object_pairs_hook=_Pairs, parse_int=str, parse_float=str), "", found)
    return [f'duplicate field "{path}"' for path in found]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs; a type of its own, unlike JSON arrays."""


def _walk(value: Any, path: str, found: dict[str, None]) -> None:
    if len(found) >= MAX_FINDINGS:
        return
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            here = f"{path}.{key}" if path else key
            if key in seen and len(found) < MAX_FINDINGS:
                found[here] = None
            seen.add(key)
            if isinstance(inner, list):
                _walk(inner, here, found)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            if isinstance(inner, list):
                _walk(inner, f"{path}[{i}]", found)
