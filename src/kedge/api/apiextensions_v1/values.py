"""Validates documents against schemas, with the messages of upstream's validator."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from kedge.api.apiextensions_v1 import formats
from kedge.api.apiextensions_v1.correlation import Correlation
from kedge.machinery.errors import FieldError
from kedge.machinery.patterns import Pattern, compile_pattern

MAX_STEPS = 1 << 21
"""How much work the values of one object may make: some three seconds at worst.

Alternatives multiply: each of a hundred thousand items may be tried against each of a thousand
schemas. Upstream would try them all."""
_USUAL_PROGRAM = 512
"""Instructions of a pattern that is matched in the time that the rest of the work takes."""


_EXACT: Final = 2**53 - 1
"""The largest whole number that counts as an integer although it is written as a fraction."""


class TooExpensive(Exception):
    """The steps are used up."""


class ErrorList(list[FieldError]):
    """Errors of one object, with the steps that are left to validate it."""

    def __init__(self, left: list[int]) -> None:
        super().__init__()
        self.left = left

    def spend(self, steps: int) -> None:
        self.left[0] -= steps
        if self.left[0] < 0:
            raise TooExpensive


_NO_PATH = "<nil>"
_RANGES = {"int32": 2**31, "int64": 2**63, "": 2**63}
_LARGEST_FLOAT32 = 3.4028234663852886e38


def validate(props: Mapping[str, Any], value: object, path: str = "") -> Iterator[FieldError]:
    """Everything wrong with a value. For many values of one schema make the Checker once."""
    yield from Checker(props).errors(value, path)


class Checker:
    """Validates values against one schema.

    Besides errors it counts matches: if no alternative of several fits, the errors of the closest
    one are reported.
    """

    def __init__(self, props: Mapping[str, Any]) -> None:
        mixed = bool(props.get("x-kubernetes-int-or-string"))
        type_ = props.get("type") or ""
        self._types: tuple[str, ...] = ("integer", "string") if mixed else (type_,) if type_ else ()
        format_ = props.get("format") or ""
        self._format = format_ if formats.recognized(format_, "" if mixed else type_) else ""
        self._test = formats.known(self._format)
        self._nullable = bool(props.get("nullable"))
        self._enum: Sequence[object] = props.get("enum") or ()
        self._any = _checkers(props.get("anyOf"))
        self._one = _checkers(props.get("oneOf"))
        self._all = _checkers(props.get("allOf"))
        self._not = _checker(props.get("not"))
        self._most_chars, self._fewest_chars = props.get("maxLength"), props.get("minLength")
        self._pattern: str = props.get("pattern") or ""
        self._compiled = _compiled(self._pattern) if self._pattern else None
        self._bounds = _bounds(props, self._types)
        self._items = _checker(props.get("items"))
        self._most_items, self._fewest_items = props.get("maxItems"), props.get("minItems")
        properties = props.get("properties")
        self._fields = {k: checker_of(v) for k, v in properties.items()} if properties else _NONE
        self._required: Sequence[str] = props.get("required") or ()
        rest = props.get("additionalProperties")
        self._closed = rest is False
        self._rest = _checker(rest)
        self._most_fields = props.get("maxProperties")
        self._fewest_fields = props.get("minProperties")
        parts = (*self._any, *self._one, *self._all, *self._fields.values())
        own = self._compiled.cost // _USUAL_PROGRAM if self._compiled else 1
        self.effort: int = max(
            own,
            1,
            *(part.effort for part in parts),
            *(part.effort for part in (self._not, self._items, self._rest) if part is not None),
        )
        """How many times longer than usual validating a byte may take."""

    def errors(
        self, value: object, path: str = "", node: Correlation | None = None
    ) -> list[FieldError]:
        """Everything wrong with the value, which stands at `path`.

        Errors of values that are unchanged are left out, if `node` knows the old ones."""
        found = ErrorList([MAX_STEPS])
        try:
            self.check(value, "", found, node)
        except TooExpensive:
            why = "is too large to be validated against its schema within a reasonable time"
            return [FieldError.invalid(path or _NO_PATH, "", why)]
        return [_placed(error, path) for error in dict.fromkeys(found)]

    def check(
        self, value: object, name: str, found: ErrorList, node: Correlation | None = None
    ) -> int:
        """Adds to `found` what is wrong with the value at `name`; returns how much was right."""
        before = len(found)
        matched = self._check(value, name, found, node)
        if node is not None and len(found) > before and node.is_unchanged():
            del found[before:]
        return matched

    def _check(self, value: object, name: str, found: ErrorList, node: Correlation | None) -> int:
        found.spend(1 + len(name) // 256)  # an error would hold the whole path
        if value is None:
            matched = self._check_type(None, name, found)
            self._check_enum(None, name, found)
            return matched
        matched = 4
        if self._types or self._format:
            matched += 1 + self._check_type(value, name, found)
        matched += self._check_combinations(value, name, found, node)
        if isinstance(value, str):
            self._check_text(value, name, found)
            matched += 2 if self._test else 1
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._bounds.check(value, name, found)
            matched += 2
        elif isinstance(value, list):
            matched += 2 + self._check_list(value, name, found, node)
        self._check_enum(value, name, found)
        if isinstance(value, dict):
            matched += 1 + self._check_object(value, name, found, node)
        return matched

    def _check_type(self, value: object, name: str, found: ErrorList) -> int:
        actual, actual_format = _type_of(value)
        if self._type_fits(value, actual):
            return 1
        if self._format and value is not None and not isinstance(value, str | list):
            wanted, actual = self._format, actual_format
        else:
            wanted = ",".join(self._types)
        found.append(_mistyped(name, wanted, actual))
        return 0

    def _type_fits(self, value: object, actual: str) -> bool:
        if value is None:
            return self._nullable or not self._types
        if isinstance(value, str) and self._format and not _numeric(self._types):
            return True
        if isinstance(value, float) and value.is_integer() and "integer" in self._types:
            return abs(value) <= _EXACT
        return actual in self._types or (actual == "integer" and "number" in self._types)

    def _check_enum(self, value: object, name: str, found: ErrorList) -> None:
        if not self._enum:
            return
        found.spend(len(self._enum) // 16)
        if not any(_same(value, allowed) for allowed in self._enum):
            found.spend(len(self._enum))
            shown = [each if isinstance(each, str) else _json(each) for each in self._enum]
            found.append(FieldError.not_supported(name, value, shown))

    def _check_text(self, value: str, name: str, found: ErrorList) -> None:
        if self._most_chars is not None and len(value) > self._most_chars:
            found.append(FieldError.too_long(name, self._most_chars))
        elif self._fewest_chars is not None and len(value) < self._fewest_chars:
            why = f"should be at least {self._fewest_chars} chars long"
            found.append(_wrong(name, value, why))
        elif self._pattern and not self._matches(value, found):
            found.spend(len(self._pattern) // 128)
            found.append(_wrong(name, value, f"should match '{self._pattern}'"))
        if self._test and not self._test(value):
            found.append(_mistyped(name, self._format, value))

    def _matches(self, value: str, found: ErrorList) -> bool:
        if self._compiled is None:
            return False
        try:
            matched, microseconds = self._compiled.timed_search(value)
        except OverflowError:
            raise TooExpensive from None
        found.spend(microseconds)
        return matched

    def _check_list(
        self, value: list[object], name: str, found: ErrorList, node: Correlation | None
    ) -> int:
        matched = 0
        if self._items is not None:
            for i, element in enumerate(value):
                inner = None if node is None else node.index(i)
                matched += self._items.check(element, f"{name}[{i}]", found, inner)
        if self._fewest_items is not None and len(value) < self._fewest_items:
            why = f"should have at least {self._fewest_items} items"
            found.append(_wrong(name, len(value), why))
        if self._most_items is not None and len(value) > self._most_items:
            found.append(FieldError.too_many(name, len(value), self._most_items))
        return matched

    def _check_object(
        self, value: dict[str, object], name: str, found: ErrorList, node: Correlation | None
    ) -> int:
        matched = 0
        if self._fewest_fields is not None and len(value) < self._fewest_fields:
            why = f"should have at least {self._fewest_fields} properties"
            found.append(_wrong(name, len(value), why))
        if self._most_fields is not None and len(value) > self._most_fields:
            found.append(FieldError.too_many(name, len(value), self._most_fields))
        for key, inner in value.items():
            if key in self._fields:
                where = f"{name}.{key}" if name else key
                matched += self._fields[key].check(inner, where, found, _at_key(node, key))
            elif self._closed:
                why = f"{name}.{key} in body is a forbidden property"
                found.append(FieldError.invalid(name, key, why))
            elif self._rest is not None:
                matched += self._rest.check(inner, f"{name}.{key}", found, _at_key(node, key))
        for key in self._required:
            if key not in value:
                found.append(FieldError.required(f"{name}.{key}"))
        return matched

    def _check_combinations(
        self, value: object, name: str, found: ErrorList, node: Correlation | None
    ) -> int:
        matched = 0
        if self._any:
            matched += self._check_any(value, name, found, node)
        if self._one:
            matched += self._check_one(value, name, found, node)
        if self._all:
            matched += self._check_all(value, name, found, node)
        if self._not is not None:
            against = ErrorList(found.left)
            self._not.check(value, name, against)
            if not against:
                found.append(_unnamed(f"{_json(name)} must not validate the schema (not)"))
        return matched

    def _check_any(
        self, value: object, name: str, found: ErrorList, node: Correlation | None
    ) -> int:
        tried = _tried(self._any, value, name, found, node)
        for matched, errors in tried:
            if not errors:
                return matched
        matched, errors = max(tried, key=lambda each: each[0])
        why = f"{_json(name)} must validate at least one schema (anyOf)"
        found += [_unnamed(why), *errors]
        return matched

    def _check_one(
        self, value: object, name: str, found: ErrorList, node: Correlation | None
    ) -> int:
        tried = _tried(self._one, value, name, found, node)
        valid = [matched for matched, errors in tried if not errors]
        if len(valid) == 1:
            return valid[0]
        why = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
        only = f"{_json(name)} must validate one and only one schema (oneOf). {why}"
        found.append(_unnamed(only))
        if valid:
            return 0
        matched, errors = max(tried, key=lambda each: each[0])
        found += errors
        return matched

    def _check_all(
        self, value: object, name: str, found: ErrorList, node: Correlation | None
    ) -> int:
        tried = _tried(self._all, value, name, found, node)
        failed = [errors for _, errors in tried if errors]
        for errors in failed:
            found += errors
        if failed:
            none = ". None validated" if len(failed) == len(tried) else ""
            found.append(_unnamed(f"{_json(name)} must validate all the schemas (allOf){none}"))
        return sum(matched for matched, _ in tried)


class _Bounds:
    """The rules of a schema for numbers."""

    def __init__(self, props: Mapping[str, Any], types: tuple[str, ...]) -> None:
        self.whole = types == ("integer",)
        self.real = types == ("number",)
        self.format: str = props.get("format") or ""
        self.factor: float | None = props.get("multipleOf")
        self.least: float | None = props.get("minimum")
        self.most: float | None = props.get("maximum")
        self.above_least = bool(props.get("exclusiveMinimum"))
        self.below_most = bool(props.get("exclusiveMaximum"))

    def check(self, value: float, name: str, found: ErrorList) -> None:
        self._check_range(value, "Checked", name, found)
        if self.factor is not None:
            self._check_range(self.factor, "MultipleOf", name, found)
            if not _is_multiple(value, self.factor):
                why = f"should be a multiple of {_go(self.factor)}"
                found.append(_wrong(name, value, why))
        if self.least is not None:
            self._check_range(self.least, "Minimum boundary", name, found)
            if value < self.least or (self.above_least and value == self.least):
                equal = "" if self.above_least else " or equal to"
                why = f"should be greater than{equal} {_go(self.least)}"
                found.append(_wrong(name, value, why))
        if self.most is not None:
            self._check_range(self.most, "Maximum boundary", name, found)
            if value > self.most or (self.below_most and value == self.most):
                equal = "" if self.below_most else " or equal to"
                why = f"should be less than{equal} {_go(self.most)}"
                found.append(_wrong(name, value, why))

    def _check_range(self, value: float, which: str, name: str, found: ErrorList) -> None:
        format_ = self.format if formats.recognized(self.format, self._type) else ""
        if self.whole:
            limit = _RANGES[format_]
            # A fraction is compared after Go has rounded it.
            least = -limit if isinstance(value, int) else 1 - limit
            fits = float(value).is_integer() and least <= value < limit
        else:
            fits = not (self.real and format_ == "float" and abs(value) > _LARGEST_FLOAT32)
        if not fits:
            said = f"with format {format_}" if format_ else "(default format)"
            why = f"{which} value must be of type {self._type} {said} in {name}"
            found.append(_unnamed(why))

    @property
    def _type(self) -> str:
        return "integer" if self.whole else "number"


def _compiled(pattern: str) -> Pattern | None:
    try:
        return compile_pattern(pattern)
    except ValueError:
        # Such a schema is refused; one from elsewhere matches nothing, as upstream has it.
        return None


_NONE: Final[Mapping[str, Checker]] = {}
_READ: Final = frozenset(
    (
        *("type", "format", "nullable", "pattern", "x-kubernetes-int-or-string"),
        *("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"),
        *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    )
)
"""The rules for values without parts."""
_TOLD: Final = frozenset(("description", "title", "default", "example", "externalDocs"))
_LONGEST_SHARED: Final = 64


def checker_of(props: Mapping[str, Any]) -> Checker:
    """Return a Checker, the same one for equal simple schemas. A schema of a megabyte has tens of
    thousands of fields, most of them strings: an own Checker for each is six objects, which every
    search for garbage visits."""
    simple: list[tuple[str, type, object]] = []
    for name, value in props.items():
        if name in _READ and (type(value) is not str or len(value) <= _LONGEST_SHARED):
            simple.append((name, type(value), value))
        elif name not in _TOLD:
            return Checker(props)
    return _shared_checker(tuple(simple))


@lru_cache(1024)
def _shared_checker(props: tuple[tuple[str, type, Any], ...]) -> Checker:
    return Checker({name: value for name, _, value in props})


def _checker(props: object) -> Checker | None:
    return checker_of(props) if isinstance(props, dict) else None


def _checkers(many: Iterable[Mapping[str, Any]] | None) -> Sequence[Checker]:
    return [checker_of(props) for props in many] if many else ()


_NUMBERS: Final = ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _bounds(props: Mapping[str, Any], types: tuple[str, ...]) -> _Bounds:
    if any(name in props for name in _NUMBERS):
        return _Bounds(props, types)
    return _wide_bounds(str(props.get("format") or "")[:_LONGEST_SHARED], types)


@lru_cache(64)
def _wide_bounds(format_: str, types: tuple[str, ...]) -> _Bounds:
    return _Bounds({"format": format_}, types)


def _at_key(node: Correlation | None, name: str) -> Correlation | None:
    return None if node is None else node.key(name)


def _tried(
    alternatives: Iterable[Checker],
    value: object,
    name: str,
    found: ErrorList,
    node: Correlation | None,
) -> list[tuple[int, list[FieldError]]]:
    results: list[tuple[int, list[FieldError]]] = []
    for alternative in alternatives:
        errors = ErrorList(found.left)
        # An alternative is a part of this value's schema: only values below it are tolerated.
        results.append((alternative._check(value, name, errors, node), errors))
    return results


def _placed(error: FieldError, path: str) -> FieldError:
    """The error seen from the outside. Those about no field in particular go to the whole."""
    name = error.field.removeprefix(".")
    joint = "." if path and name and not name.startswith("[") else ""
    return FieldError(error.reason, f"{path}{joint}{name}" or _NO_PATH, error.body)


def _wrong(name: str, value: object, why: str) -> FieldError:
    return FieldError.invalid(name, value, f"{name} in body {why}")


def _mistyped(name: str, wanted: str, actual: str) -> FieldError:
    # Upstream names the type it found where a value is expected, and so do we.
    why = f"{name} in body must be of type {wanted}: {_json(actual)}"
    return FieldError.mistyped(name, actual, why)


def _unnamed(why: str) -> FieldError:
    return FieldError.invalid("", "", why)


def _type_of(value: object) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", ""
        case str():
            return "string", ""
        case int():
            return "integer", "int64"
        case float():
            return "number", "float64"
        case list():
            return "array", ""
        case dict():
            return "object", ""
        case _:
            return "null", ""


def _numeric(types: tuple[str, ...]) -> bool:
    return "number" in types or "integer" in types


def _same(value: object, allowed: object) -> bool:
    """Equality of JSON values; null equals nothing, not even when it is listed."""
    if value is None or isinstance(value, bool) != isinstance(allowed, bool):
        return False
    return value == allowed


_ROUNDING = 1e-9


def _is_multiple(value: float, factor: float) -> bool:
    if factor <= 0:
        return False
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    # As upstream: the quotient is whole but for rounding, and small enough to tell.
    quotient = 1 / factor * value if factor < 1 else value / factor
    if not abs(quotient) < 2**53:
        return False
    whole = int(quotient)
    return quotient == whole or abs(quotient - whole) / abs(quotient + whole) < _ROUNDING


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _go(number: float) -> str:
    """A bound as a message shows it: `10`, `1.5`."""
    return str(int(number)) if float(number).is_integer() else repr(number)
