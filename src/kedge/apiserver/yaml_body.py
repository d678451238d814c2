"""YAML as Kubernetes reads it: the plain document that the same text is in JSON."""

import json
import math
import re
from typing import Any

import yaml

from kedge.machinery.errors import bad_request

MAX_NODES = 1 << 20
"""How many values a body may unfold into: aliases make much out of little."""


def read(data: bytes, *, depth: int) -> tuple[Any, list[str]]:
    """The document, and complaints about keys that stood in it more than once; raises 400."""
    try:
        loader = _Loader(data)
        try:
            document = loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise bad_request(f"error converting YAML to JSON: {error}") from None
    if not isinstance(document, dict):
        return document, []
    return _Unfolding().unfold(document, depth), loader.duplicates


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Timestamps stay text, and repeated keys are noticed."""

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
