"""Rules for the names of drivers, pools, devices, requests and attributes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from kedge.api import rules
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.volume.validation import validate_driver_name
from kedge.api.resource_v1 import sizes
from kedge.machinery import names
from kedge.machinery.errors import FieldError

T = TypeVar("T")

_UUID_LENGTHS: Final = (32, 36, 38, 45)
_NOT_NORMAL: Final = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` "
    "with lowercase hexadecimal characters"
)


def validate_label(path: str, value: str) -> Iterator[FieldError]:
    """Everything wrong with the name of a device, request or counter."""
    yield from rules.problems(path, value, names.dns_label(value))


def validate_pool_name(path: str, name: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError.required(path)
        return
    if len(name) > sizes.POOL_NAME_CHARACTERS:
        yield FieldError.too_long(path, sizes.POOL_NAME_CHARACTERS)
    for part in name.split("/"):
        yield from rules.problems(path, part, names.dns_subdomain(part))


def validate_class_name(path: str, name: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError.required(path)
    else:
        yield from rules.problems(path, name, names.dns_subdomain(name))


def validate_attribute_name(path: str, name: str) -> Iterator[FieldError]:
    """Everything wrong with `name` or `domain/name`; three parts are not looked at, as upstream."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier(path, name)
    elif len(parts) == 2:
        domain, identifier = parts
        if not domain:
            yield FieldError.invalid(path, "", "the domain must not be empty")
        else:
            yield from validate_driver_name(path, domain)
        if not identifier:
            yield FieldError.invalid(path, "", "the name must not be empty")
        else:
            yield from _identifier(path, identifier)


def validate_full_attribute_name(path: str, name: str) -> Iterator[FieldError]:
    yield from validate_attribute_name(path, name)
    if "/" not in name:
        why = "a fully qualified name must be a domain and a name separated by a slash"
        yield FieldError.invalid(path, name, why)


def _identifier(path: str, value: str) -> Iterator[FieldError]:
    if len(value) > sizes.IDENTIFIER_CHARACTERS:
        yield FieldError.too_long(path, sizes.IDENTIFIER_CHARACTERS)
    yield from rules.problems(path, value, names.c_identifier(value))


def validate_uid(path: str, uid: str) -> Iterator[FieldError]:
    if len(uid) not in _UUID_LENGTHS:
        why = f"error validating uid: invalid UUID length: {len(uid)}"
        yield FieldError.invalid(path, uid, why)
    elif not _is_hexadecimal(uid):
        yield FieldError.invalid(path, uid, "error validating uid: invalid UUID format")
    elif len(uid) != 36 or uid != uid.lower():
        yield FieldError.invalid(path, uid, _NOT_NORMAL)


def _is_hexadecimal(uid: str) -> bool:
    digits = uid.removeprefix("urn:uuid:").strip("{}")
    if len(digits) == 36:
        marks = [digits[i] for i in (8, 13, 18, 23)]
        digits = digits.replace("-", "") if marks == ["-"] * 4 else ""
    return len(digits) == 32 and all(each in "0123456789abcdefABCDEF" for each in digits)


def validate_items(
    path: str, items: Sequence[T], limit: int, check: Callable[[T], Iterator[FieldError]]
) -> Iterator[FieldError]:
    """The errors of each item; of a list that is too long only that."""
    if len(items) > limit:
        yield FieldError.too_many(path, len(items), limit)
        return
    for i, item in enumerate(items):
        yield from within(f"{path}[{i}]", check(item))


def validate_set(
    path: str,
    items: Sequence[T],
    limit: int,
    check: Callable[[T], Iterator[FieldError]],
    key: Callable[[T], str],
) -> Iterator[FieldError]:
    """The errors of each item, and the items whose key occurred before."""
    yield from validate_items(path, items, limit, check)
    if len(items) <= limit:
        for i in rules.repeated([key(item) for item in items]):
            yield FieldError.duplicate(f"{path}[{i}]", key(items[i]))


def validate_map(
    path: str,
    items: Mapping[str, T],
    check_key: Callable[[str, str], Iterator[FieldError]],
    check: Callable[[T], Iterator[FieldError]],
) -> Iterator[FieldError]:
    """The errors of keys, reported at the map, and of values."""
    for key, item in items.items():
        yield from check_key(path, key)
        yield from within(f"{path}[{_shortened(key)}]", check(item))


def _shortened(key: str) -> str:
    longest = sizes.DOMAIN_CHARACTERS + 1 + sizes.IDENTIFIER_CHARACTERS
    if len(key) <= longest:
        return key
    left = longest - 3
    return f"{key[: (left + 1) // 2]}...{key[len(key) - left // 2 :]}"
