"""Request bodies: JSON, YAML or protobuf in, one plain document out."""

import json
import math
import re
from typing import Any

import msgspec
import yaml

from kedge.api import protobuf
from kedge.apiserver.media import ACCEPTED, body_type
from kedge.machinery.errors import bad_request, unsupported_media_type

MAX_DEPTH = 100
"""How deeply a body may be nested; no schema comes near, and every walk below is recursive."""
MAX_NODES = 1 << 20
"""How many values a YAML body may unfold into: aliases make much out of little."""


class Body(msgspec.Struct, frozen=True):
    """A document, and complaints about keys that stood in it more than once."""

    document: dict[str, Any]
    duplicates: list[str]


def read(content_type: str, data: bytes) -> Body:
    """The document in a body of that type; raises 415 or 400."""
    match body_type(content_type):
        case "" | "application/json":
            return read_json(data)
        case "application/yaml":
            return read_yaml(data)
        case "application/vnd.kubernetes.protobuf":
            return Body(_decoded_protobuf(data), [])
        case _:
            raise unsupported_media_type(content_type, ACCEPTED)


def read_json(data: bytes) -> Body:
    document = decode_json(data)
    if not isinstance(document, dict):
        raise bad_request("the body of the request must be a JSON object")
    duplicates = _duplicates(data) if _may_repeat_keys(data, document) else []
    return Body(document, duplicates)


def decode_json(data: bytes) -> Any:
    """Any JSON value; raises 400."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        check_depth(value)
    return value


def read_yaml(data: bytes) -> Body:
    try:
        loader = _Loader(data)
        try:
            document = loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise bad_request(f"error converting YAML to JSON: {error}") from None
    if not isinstance(document, dict):
        raise bad_request("the body of the request must be a YAML mapping")
    return Body(_Unfolding().unfold(document, MAX_DEPTH), loader.duplicates)


def check_depth(value: Any, left: int = MAX_DEPTH) -> None:
    """Refuse what is nested so deeply that walking it would exhaust the stack."""
    if type(value) is dict:
        value = value.values()
    elif type(value) is not list:
        return
    if not left:
        raise bad_request(f"the body of the request is nested more than {MAX_DEPTH} levels deep")
    for inner in value:
        if type(inner) is dict or type(inner) is list:
            check_depth(inner, left - 1)


def _decoded_protobuf(data: bytes) -> dict[str, Any]:
    try:
        document = protobuf.decode(data)
    except ValueError as error:
        raise bad_request(f"cannot decode protobuf body: {error}") from None
    check_depth(document)
    return document


def _may_repeat_keys(data: bytes, document: dict[str, Any]) -> bool:
    """A cheap sieve: whether more keys were written than the document has."""
    if b"\\" in data:
        return _STRINGS.findall(data).count(b":") != _count_keys(document)
    # Without escapes a quote and a colon are a key, or the beginning of a string that stands in the
    # same way in what is written again.
    again = msgspec.json.encode(document)
    return data.translate(None, _BLANKS).count(b'":') != again.translate(None, _BLANKS).count(b'":')


_BLANKS = b" \t\r\n"
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"\s*(:?)', re.DOTALL)
"""Every string of a JSON text, and the colon that makes it a key."""


def _count_keys(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum([_count_keys(v) for v in value.values() if type(v) in _HOLDERS])
    return sum([_count_keys(v) for v in value if type(v) in _HOLDERS])


_HOLDERS = frozenset((dict, list))


def _duplicates(data: bytes) -> list[str]:
    """Complaints about keys that stand twice in one object."""
    found: list[str] = []
    _walk(json.loads(data, object_pairs_hook=_Pairs), "", found)
    return [f'duplicate field "{path}"' for path in dict.fromkeys(found)]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, told apart from a JSON array."""


def _walk(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            here = f"{path}.{key}" if path else key
            if key in seen:
                found.append(here)
            seen.add(key)
            _walk(inner, here, found)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _walk(inner, f"{path}[{i}]", found)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it: timestamps stay text, and repeated keys are noticed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.duplicates: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge" or not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                line = value.start_mark.line + 1
                name = json.dumps(key.value, ensure_ascii=False)
                self.duplicates.append(f"line {line}: key {name} already set in map")
            seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


# Numbers with colons are base 60 to YAML 1.1, but plain text to Kubernetes; 1e3 is a number to it.
_KEPT_RESOLVERS = ("null", "bool", "merge", "value")
_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in resolvers if pair[0].rpartition(":")[2] in _KEPT_RESOLVERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?((\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(?i:inf|nan))$"),
    list("-+.0123456789"),
)


def _integer(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits[:2] in ("0b", "0o", "0x"):
        return sign * int(digits, 0)
    return sign * int(digits, 8 if digits.startswith("0") else 10)


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor(
    "tag:yaml.org,2002:float", lambda loader, node: float(loader.construct_scalar(node))
)


class _Unfolding:
    """Aliases followed, keys made strings: the tree that the same document is in JSON."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def unfold(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if not depth or self._left < 0:
            raise bad_request("error converting YAML to JSON: document contains excessive aliasing")
        if isinstance(value, dict):
            return {_key(key): self.unfold(inner, depth - 1) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.unfold(inner, depth - 1) for inner in value]
        if isinstance(value, float) and not math.isfinite(value):
            raise bad_request(f"error converting YAML to JSON: unsupported value: {value}")
        if value is None or isinstance(value, str | int | float | bool):
            return value
        raise bad_request(f"error converting YAML to JSON: cannot represent {type(value).__name__}")


def _key(key: Any) -> str:
    match key:
        case str():
            return key
        case None:
            return "null"
        case bool():
            return "true" if key else "false"
        case _:
            return str(key)
