"""The normal form of an answer: values that differ by chance are replaced by their names."""

import json
import re
from typing import Any, Final

from tests.differential.cases import Answer

_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FIXED_UID: Final = "11111111-2222-3333-4444-555555555555"
_TIME: Final = re.compile(r"\b(?!2001)2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_VERSIONS: Final = re.compile(r'(resourceVersion\\?"?[:=] ?\\?"?)\d+')
_IN_RECORD: Final = re.compile(
    r"(ResourceVersion in (?:record|the precondition) \(|ResourceVersion in object meta: )\d+"
)
_CURRENT: Final = re.compile(r"(Too large resource version: \d+, current: )\d+")
_PORT: Final = re.compile(r"\b3[0-2]\d{3}\b")
_ADDRESS: Final = re.compile(r"\b10\.(?:96|43|0)\.\d+\.\d+\b")
_AGE: Final = re.compile(r"\d+[sm]")
_OBJECT_ADDRESS: Final = re.compile(r"\(0x[0-9a-f]+\)|0xc[0-9a-f]{6,}")

_GENERATED: Final = re.compile(
    r"\b((?:seq\d+-|walk\d+-|x-|kube-api-access-|[xX]|a\.|x{58}))[bcdfghjklmnpqrstvwxz2456789]{5}\b"
)
"""A name that the server made from `generateName`."""

_BY_KEY: Final = {
    "resourceVersion": "VERSION",
    "uid": "UID",
    "continue": "TOKEN",
    "remainingItemCount": "COUNT",
    "clusterIP": "ADDRESS",
    "clusterIPs": "ADDRESS",
}


def normal(answer: Answer) -> Answer:
    """Return the answer without uids, times, versions, addresses and ports of the server."""
    return Answer(
        answer.code,
        _value(answer.document),
        tuple(sorted(_text(each) for each in answer.warnings)),
        answer.content_type,
    )


def _value(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        described = {"name", "priority"} <= value.keys()
        return {
            # Columns of tables have descriptions of our own.
            name: "" if described and name == "description" else _value(each, name)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_value(each, key) for each in value]
    if isinstance(value, str):
        if key in _BY_KEY and value and value != "None":
            return value if value in ("0", "1", _FIXED_UID, "u") else _BY_KEY[key]
        return _text(value)
    if key == "nodePort" and isinstance(value, int) and value:
        return "PORT"
    return value


def _text(text: str) -> str:
    if _AGE.fullmatch(text):
        return "AGE"
    text = _UID.sub(lambda found: found[0] if found[0] == _FIXED_UID else "UID", text)
    text = _VERSIONS.sub(r"\1VERSION", _TIME.sub("TIME", text))
    text = _CURRENT.sub(r"\1VERSION", _IN_RECORD.sub(r"\1VERSION", text))
    text = _ADDRESS.sub("ADDRESS", _OBJECT_ADDRESS.sub("POINTER", text))
    return _GENERATED.sub(r"\1RANDOM", text)


def parsed(body: bytes) -> Any:
    """Return the document of a body, or its text if it is no JSON."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
