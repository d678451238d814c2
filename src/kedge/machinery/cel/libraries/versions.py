"""Semantic versions such as `1.2.3-rc.1`."""

import re
from typing import Any, ClassVar, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import Functions, first_traversed, function, library, method
from kedge.machinery.cel.types import BOOL, INT, SEMVER, STRING
from kedge.machinery.errors import quoted

_IDENTIFIER: Final = re.compile("[0-9A-Za-z-]+").fullmatch
_UINT_DIGITS: Final = 20


class SemverValue:
    """A version as a value of expressions."""

    __slots__ = ("numbers", "order", "text")

    cel_type: ClassVar[str] = SEMVER.name

    def __init__(self, numbers: tuple[int, int, int], pre: tuple[str, ...]) -> None:
        self.numbers = numbers
        # A version without pre-release parts is later than one with them.
        self.order = (numbers, not pre, tuple(map(_part_order, pre)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemverValue) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)


def _part_order(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


_DIGITS: Final = frozenset("0123456789")


def version_of(text: str, normalize: bool = False) -> SemverValue:
    """Return the version that a text spells, or raise a CelError in upstream's words."""
    if len(text) > 1024:
        raise CelError("Invalid character(s) found in version")
    if normalize:
        text = _normalized(text)
    if not text:
        raise CelError("Version string empty")
    core, plus, build = text.partition("+")
    core, dash, pre = core.partition("-")
    parts = core.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    names = ("Major", "Minor", "Patch")
    numbers = tuple(map(_number, names, parts))
    before = tuple(map(_pre_release, pre.split("."))) if dash else ()
    for part in build.split(".") if plus else ():
        if not part:
            raise CelError("Build meta data is empty")
        if _IDENTIFIER(part) is None:
            raise CelError(f"Invalid character(s) found in build meta data {quoted(part)}")
    return SemverValue((numbers[0], numbers[1], numbers[2]), before)


def _number(name: str, text: str) -> int:
    if not text:
        raise CelError('strconv.ParseUint: parsing "": invalid syntax')
    if not text.isascii() or not text.isdigit():
        raise CelError(f"Invalid character(s) found in {name.lower()} number {quoted(text)}")
    if len(text) > 1 and text.startswith("0"):
        raise CelError(f'{name} number must not contain leading zeroes "{text}"')
    if len(text) > _UINT_DIGITS or int(text) >= 1 << 64:
        raise CelError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _pre_release(part: str) -> str:
    if not part:
        raise CelError("Prerelease is empty")
    if _IDENTIFIER(part) is None:
        raise CelError(f"Invalid character(s) found in prerelease {quoted(part)}")
    if part.isdigit() and len(part) > 1 and part.startswith("0"):
        raise CelError(f'Numeric PreRelease version must not contain leading zeroes "{part}"')
    return part


def _normalized(text: str) -> str:
    """Return a version without `v`, leading zeros, and with all three numbers."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and not {"+", "-"}.isdisjoint(parts[-1]):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, *["0"] * (3 - len(parts))])


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    part = part.lstrip("0")
    return part if part[:1] in _DIGITS else f"0{part}"


def _is_version(text: str, normalize: bool = False) -> bool:
    try:
        version_of(text, normalize)
    except CelError:
        return False
    return True


def _compare(one: SemverValue, other: SemverValue) -> int:
    return (one.order > other.order) - (one.order < other.order)


def _numbered(index: int) -> Any:
    return lambda version: version.numbers[index]


_TWO: Final = (SEMVER, SEMVER)

VERSIONS: Final[Functions] = library(
    semver=(
        function("string_to_semver", (STRING,), SEMVER, version_of, first_traversed),
        function("string_bool_to_semver", (STRING, BOOL), SEMVER, version_of, first_traversed),
    ),
    isSemver=(
        function("is_semver_string", (STRING,), BOOL, _is_version, first_traversed),
        function("is_semver_string_bool", (STRING, BOOL), BOOL, _is_version, first_traversed),
    ),
    isGreaterThan=(method("semver_is_greater_than", _TWO, BOOL, lambda a, b: _compare(a, b) > 0),),
    isLessThan=(method("semver_is_less_than", _TWO, BOOL, lambda a, b: _compare(a, b) < 0),),
    compareTo=(method("semver_compare_to", _TWO, INT, _compare),),
    major=(method("semver_major", (SEMVER,), INT, _numbered(0)),),
    minor=(method("semver_minor", (SEMVER,), INT, _numbered(1)),),
    patch=(method("semver_patch", (SEMVER,), INT, _numbered(2)),),
)
