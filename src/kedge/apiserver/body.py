"""Request bodies: JSON, YAML or protobuf in, one plain document out."""

import json
from typing import Any

import msgspec
import yaml

from kedge.api import protobuf
from kedge.apiserver.media import ACCEPTED, body_type
from kedge.machinery.errors import bad_request, unsupported_media_type

PROTOBUF = "application/vnd.kubernetes.protobuf"


class Body(msgspec.Struct, frozen=True):
    """A document, and the keys that stood in it more than once."""

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
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def read_yaml(data: bytes) -> Body:
    loader = _Loader(data)
    try:
        document = loader.get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise bad_request(f"error converting YAML to JSON: {error}") from None
    finally:
        loader.dispose()
    if not isinstance(document, dict):
        raise bad_request("the body of the request must be a YAML mapping")
    return Body(_jsonable(document), loader.duplicates)


def _decoded_protobuf(data: bytes) -> dict[str, Any]:
    try:
        return protobuf.decode(data)
    except ValueError as error:
        raise bad_request(f"cannot decode protobuf body: {error}") from None


def _may_repeat_keys(data: bytes, document: dict[str, Any]) -> bool:
    """A cheap sieve: as many colons after quotes as keys means that nothing is repeated."""
    return data.count(b'":') - data.count(b'\\":') != _count_keys(document)


def _count_keys(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum(map(_count_keys, value.values()))
    if type(value) is list:
        return sum(map(_count_keys, value))
    return 0


def _duplicates(data: bytes) -> list[str]:
    """The paths of keys that stand twice in one object."""
    found: list[str] = []
    _walk(json.loads(data, object_pairs_hook=_Pairs), "", found)
    return found


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


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: timestamps stay text, and repeated keys are noticed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.duplicates: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                self.duplicates.append(str(key.value))
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _jsonable(value: Any) -> Any:
    """YAML allows keys and values that JSON has not: numbers as keys, bytes, sets."""
    if isinstance(value, dict):
        return {_key(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_jsonable(inner) for inner in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise bad_request(f"error converting YAML to JSON: cannot represent {type(value).__name__}")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key if isinstance(key, str) else str(key)
