"""Named formats such as DNS labels, and the escape of JSON patch paths."""

import base64
import binascii
import math
import re
from collections.abc import Callable
from datetime import date
from typing import ClassVar, Final

from kedge.machinery import names
from kedge.machinery.cel.functions import Functions, first_traversed, function, method, named
from kedge.machinery.cel.libraries.urls import parse_request_uri
from kedge.machinery.cel.types import FORMAT, STRING, list_of, optional_of
from kedge.machinery.cel.values import NOTHING, Maybe, parse_timestamp

Validate = Callable[[str], list[str]]


class FormatValue:
    """A format as a value of expressions."""

    __slots__ = ("length", "name", "validate")

    cel_type: ClassVar[str] = FORMAT.name

    def __init__(self, name: str, validate: Validate, length: int) -> None:
        self.name = name
        self.validate = validate
        self.length = length
        """Characters of the pattern that the price assumes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormatValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _prefix(rule: names.Rule) -> Validate:
    return lambda text: names.generate_name_prefix(text, rule)


def _uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except ValueError as error:
        return [str(error)]
    return []


_UUID: Final = re.compile(
    r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
).fullmatch


def _uuid(text: str) -> list[str]:
    return [] if _UUID(text) else ["does not match the UUID format"]


def _base64(text: str) -> list[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return []


def _date(text: str) -> list[str]:
    try:
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            raise ValueError
        date.fromisoformat(text)
    except ValueError:
        return ["invalid date"]
    return []


def _datetime(text: str) -> list[str]:
    try:
        parse_timestamp(text.upper())
    except ValueError:
        return ["invalid datetime"]
    return []


FORMATS_BY_NAME: Final[dict[str, FormatValue]] = {
    "dns1123Label": FormatValue("DNS1123Label", names.dns_label, 30),
    "dns1123Subdomain": FormatValue("DNS1123Subdomain", names.dns_subdomain, 60),
    "dns1035Label": FormatValue("DNS1035Label", names.dns1035_label, 30),
    "qualifiedName": FormatValue("QualifiedName", names.qualified_name, 60),
    "dns1123LabelPrefix": FormatValue("DNS1123LabelPrefix", _prefix(names.dns_label), 30),
    "dns1123SubdomainPrefix": FormatValue(
        "DNS1123SubdomainPrefix", _prefix(names.dns_subdomain), 60
    ),
    "dns1035LabelPrefix": FormatValue("DNS1035LabelPrefix", _prefix(names.dns1035_label), 30),
    "labelValue": FormatValue("LabelValue", names.label_value, 40),
    "uri": FormatValue("URI", _uri, 1000),
    "uuid": FormatValue("uuid", _uuid, 86),
    "byte": FormatValue("byte", _base64, 84),
    "date": FormatValue("date", _date, 114),
    "datetime": FormatValue("datetime", _datetime, 114),
}


def _validate(format: FormatValue, text: str) -> Maybe:
    errors = format.validate(text)
    return Maybe(errors) if errors else NOTHING


def _validate_price(format: FormatValue, text: str) -> int:
    return math.ceil((1 + len(text)) * 0.1) * math.ceil(format.length * 0.25)


def _named(name: str) -> Maybe:
    found = FORMATS_BY_NAME.get(name)
    return NOTHING if found is None else Maybe(found)


def _constant(format: FormatValue) -> Callable[[], FormatValue]:
    return lambda: format


_CONSTANTS: Final = {
    f"format.{name}": (function(f"format.{name}", (), FORMAT, _constant(format)),)
    for name, format in FORMATS_BY_NAME.items()
}

FORMATS: Final[Functions] = named(
    {
        "validate": (
            method(
                "format-validate",
                (FORMAT, STRING),
                optional_of(list_of(STRING)),
                _validate,
                _validate_price,
            ),
        ),
        "format.named": (function("format-named", (STRING,), optional_of(FORMAT), _named),),
        **_CONSTANTS,
    }
)

JSON_PATCH: Final[Functions] = named(
    {
        "jsonpatch.escapeKey": (
            function(
                "string_jsonpatch_escapeKey_string",
                (STRING,),
                STRING,
                lambda text: text.replace("~", "~0").replace("/", "~1"),
                first_traversed,
            ),
        )
    }
)
