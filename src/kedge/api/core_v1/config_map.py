"""ConfigMap: settings that pods read as variables or files."""

from collections.abc import Iterator, Mapping

from kedge.api import rules
from kedge.api.model import Bytes, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

SIZE_LIMIT = 1024 * 1024
SEALED = "field is immutable when `immutable` is set"


class ConfigMap(Object):
    """Settings by key, for pods to use."""

    binaryData: Mapping[str, Bytes] = {}
    """Values that need not be text, in base64. A key stands here or in data, not in both."""
    data: Mapping[str, str] = {}
    """Values that are text."""
    immutable: bool | None = None
    """True forbids any later change of the values, and of this field."""


def validate(obj: ConfigMap) -> Iterator[FieldError]:
    yield from validate_keys(obj.data, "data")
    for key in obj.data.keys() & obj.binaryData.keys():
        why = "duplicate of key present in binaryData"
        yield FieldError.invalid(f"data[{key}]", key, why)
    yield from validate_keys(obj.binaryData, "binaryData")
    size = sum(len(text.encode()) for text in obj.data.values())
    if size + sum(map(decoded_size, obj.binaryData.values())) > SIZE_LIMIT:
        # The object as a whole is to blame, which upstream's paths spell like this.
        yield FieldError.too_long("[]", SIZE_LIMIT)


def validate_update(new: ConfigMap, old: ConfigMap) -> Iterator[FieldError]:
    if not old.immutable:
        return
    if not new.immutable:
        yield FieldError.forbidden("immutable", SEALED)
    if new.data != old.data:
        yield FieldError.forbidden("data", SEALED)
    if new.binaryData != old.binaryData:
        yield FieldError.forbidden("binaryData", SEALED)


def validate_keys(values: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Everything wrong with the keys of a ConfigMap or Secret."""
    for key in values:
        if found := names.config_key(key):
            yield from rules.problems(f"{path}[{key}]", key, found)


def decoded_size(base64: str) -> int:
    """How many bytes base64 text stands for."""
    return len(base64) // 4 * 3 - base64[-2:].count("=")


RESOURCE: Resource[ConfigMap] = Resource(
    type=ConfigMap,
    plural="configmaps",
    strategy=Strategy(counts_generation=False, validate=validate, validate_update=validate_update),
    presentation=Presentation(
        short_names=["cm"],
        columns=[
            name_column(),
            Column(
                name="Data",
                cell=lambda obj: len(obj.data) + len(obj.binaryData),
                description="How many values there are, of both sorts.",
            ),
            age_column(),
        ],
    ),
)
