"""Label and field selectors: parsed and compiled once, matched often."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.machinery.errors import FieldError, shown
from kedge.machinery.names import label_value, qualified_name
from kedge.machinery.short_cache import short_cache

Labels = Mapping[str, str]

_OPERATORS: Final = ("in", "notin", "=", "==", "!=", "gt", "lt", "exists", "!")
_BINARY_OPERATORS: Final = ", ".join(_OPERATORS[:7])
_SYMBOLS: Final = {"gt": ">", "lt": "<"}
_WORDS: Final = {symbol: word for word, symbol in _SYMBOLS.items()}
MOST_REQUIREMENTS: Final = 4_000
"""In one selector of a query. The event loop reads these in 40 ms; a query has room for 32,000."""
_OBJECT_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


class Requirement(NamedTuple):
    """One condition on one label; the operator is as written, or `exists`, `gt`, `lt`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        if self.operator in ("in", "notin"):
            return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
        return f"{self.key}{_SYMBOLS.get(self.operator, self.operator)}{self.values[0]}"


class LabelRequirements:
    """A conjunction of requirements; without any it matches every object.

    A user chooses how many requirements there are and how many objects they are put to, so the
    product of the two is nothing that a match may cost. All requirements on one label are made one,
    and a match takes as long as the object has labels.
    """

    __slots__ = ("_absent", "_denied", "_needed", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda each: each.key))
        needed: dict[str, list[Callable[[str], bool]]] = {}
        denied: dict[str, set[str]] = {}
        allowed: dict[str, set[str]] = {}
        bounds: dict[str, tuple[int, int]] = {}
        for key, operator, values in self.requirements:
            if operator in ("=", "==", "in"):
                known = allowed.get(key)
                allowed[key] = set(values) if known is None else known.intersection(values)
            elif operator in ("gt", "lt"):
                bounds[key] = _narrowed(bounds.get(key), operator, int(values[0]))
            elif operator == "exists":
                needed.setdefault(key, [])
            elif operator != "!":
                denied.setdefault(key, set()).update(values)
        for key, ones in allowed.items():
            needed.setdefault(key, []).append(ones.__contains__)
        for key, (low, high) in bounds.items():
            needed.setdefault(key, []).append(_comparison(low, high))
        self._needed = tuple((key, tuple(tests)) for key, tests in needed.items())
        self._denied = denied
        self._absent = frozenset(each.key for each in self.requirements if each.operator == "!")

    @property
    def empty(self) -> bool:
        """Whether every object matches."""
        return not self.requirements

    def matches(self, labels: Labels) -> bool:
        if len(self._needed) > len(labels):
            return False
        for key, tests in self._needed:
            if (value := labels.get(key)) is None:
                return False
            for test in tests:
                if not test(value):
                    return False
        if not self._denied and not self._absent:
            return True
        return not any(
            key in self._absent or value in self._denied.get(key, ())
            for key, value in labels.items()
        )

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.requirements == other.requirements

    def __hash__(self) -> int:
        return hash(self.requirements)


class _Nothing(LabelRequirements):
    """An absent selector: it matches no object."""

    __slots__ = ()

    @property
    def empty(self) -> bool:
        return False

    def matches(self, labels: Labels) -> bool:
        return False


EVERYTHING: Final = LabelRequirements()
NOTHING: Final[LabelRequirements] = _Nothing()


@short_cache(1024, longest=1024)
def parse_labels(text: str) -> LabelRequirements:
    """The selector a query string spells; ValueError in upstream's words if it spells none."""
    return LabelRequirements(_SelectorParser(text).selector())


def labels_from_object(selector: Mapping[str, Any] | None) -> LabelRequirements:
    """Compile a LabelSelector object: an empty one matches everything, None matches nothing."""
    if selector is None:
        return NOTHING
    requirements = [
        _checked(key, "=", (value,)) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        written = expression.get("operator", "")
        if (operator := _OBJECT_OPERATORS.get(written)) is None:
            raise ValueError(f"{shown(written)} is not a valid label selector operator")
        values = tuple(expression.get("values") or ())
        requirements.append(_checked(expression.get("key", ""), operator, values))
    return LabelRequirements(requirements)


def labels_from_map(labels: Labels) -> LabelRequirements:
    """The selector for objects with all of these labels, taken as they are."""
    return LabelRequirements(Requirement(key, "=", (value,)) for key, value in labels.items())


def _narrowed(known: tuple[int, int] | None, operator: str, bound: int) -> tuple[int, int]:
    """The integers that a further comparison leaves, both ends excluded."""
    low, high = known or (-(2**63) - 1, 2**63)
    return (max(low, bound), high) if operator == "gt" else (low, min(high, bound))


def _comparison(low: int, high: int) -> Callable[[str], bool]:
    return lambda value: _is_integer(value) and low < int(value) < high


def _is_integer(value: str) -> bool:
    return _integer(value) is not None and -(2**63) <= int(value) < 2**63


_integer: Final = re.compile(r"[+-]?[0-9]{1,19}").fullmatch


def _checked(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """A requirement that makes sense, or ValueError listing all that does not."""
    errors: list[FieldError] = []
    if problems := qualified_name(key):
        errors.append(FieldError.invalid("key", key, "; ".join(problems)))
    if complaint := _wrong_number_of_values(operator, len(values)):
        errors.append(FieldError.invalid("values", values, complaint))
    for i, value in enumerate(values):
        if operator in ("gt", "lt") and not _is_integer(value):
            complaint = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(FieldError.invalid(f"values[{i}]", value, complaint))
    for i, value in enumerate(values):
        if problems := label_value(value):
            errors.append(FieldError.invalid(f"values[{i}][{key}]", value, "; ".join(problems)))
    if errors:
        raise ValueError(_aggregate(errors))
    return Requirement(key, operator, values)


def _wrong_number_of_values(operator: str, count: int) -> str:
    if operator in ("in", "notin") and count == 0:
        return "for 'in', 'notin' operators, values set can't be empty"
    if operator in ("exists", "!") and count > 0:
        return "values set must be empty for exists and does not exist"
    return ""


def _aggregate(errors: Sequence[FieldError]) -> str:
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


_TOKEN: Final = re.compile(r"!=|==|[=!(),<>]|[^=!(),<> \t\r\n]+")
_END: Final = ""


class _SelectorParser:
    """Reads `x in (a,b), y, !z, w!=v` token by token; the end is an empty token."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = _TOKEN.findall(text)
        self.position = 0

    @property
    def ahead(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else _END

    def take(self) -> str:
        token = self.ahead
        self.position += 1
        return token

    def selector(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        if self.ahead == _END:
            return requirements
        if not _starts_requirement(self.ahead):
            raise ValueError(f"found '{self.ahead}', expected: !, identifier, or 'end of string'")
        while True:
            try:
                requirements.append(self.requirement())
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from None
            if (token := self.take()) == _END:
                return requirements
            if token != ",":
                raise ValueError(f"found '{token}', expected: ',' or 'end of string'")
            _bound(len(requirements))
            if not _starts_requirement(self.ahead):
                raise ValueError(f"found '{self.ahead}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        absent = self.ahead == "!"
        if absent:
            self.take()
        key = self.key()
        if absent:
            return _checked(key, "!", ())
        if self.ahead in (_END, ","):
            return _checked(key, "exists", ())
        operator = self.operator()
        if operator in ("in", "notin"):
            return _checked(key, operator, self.values())
        return _checked(key, operator, (self.value(),))

    def key(self) -> str:
        key = self.take()
        if not _is_identifier(key):
            raise ValueError(f"found '{key}', expected: identifier")
        if problems := qualified_name(key):
            # The parser knows no field to blame, and upstream prints that as <nil>.
            raise ValueError(str(FieldError.invalid("<nil>", key, "; ".join(problems))))
        return key

    def operator(self) -> str:
        token = self.take()
        operator = _WORDS.get(token, token)
        if operator not in ("in", "notin", "=", "==", "!=") and token not in _WORDS:
            raise ValueError(f"found '{token}', expected: {_BINARY_OPERATORS}")
        return operator

    def value(self) -> str:
        if self.ahead in (_END, ","):
            return ""
        token = self.take()
        if not _is_identifier(token):
            raise ValueError(f"found '{token}', expected: identifier")
        return token

    def values(self) -> tuple[str, ...]:
        """Return the values in parentheses; nothing between two commas is the empty value."""
        if (token := self.take()) != "(":
            raise ValueError(f"found '{token}' expected: '('")
        if self.ahead not in (",", ")") and not _is_identifier(self.ahead):
            raise ValueError(f"found '{self.ahead}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            values.add(self.take() if _is_identifier(self.ahead) else "")
            following = self.take()
            if following == ")":
                return tuple(sorted(values))
            if following != ",":
                raise ValueError(f"found '{following}', expected: ',' or ')'")
            if self.ahead not in (",", ")") and not _is_identifier(self.ahead):
                raise ValueError(f"found '{self.ahead}', expected: ',', or identifier")


def _bound(read: int) -> None:
    if read >= MOST_REQUIREMENTS:
        raise ValueError(f"a selector has at most {MOST_REQUIREMENTS:,} requirements")


def _is_identifier(token: str) -> bool:
    return token != _END and token[0] not in "=!(),<>"


def _starts_requirement(token: str) -> bool:
    return token == "!" or _is_identifier(token)


class FieldTerm(NamedTuple):
    """One condition on one field; `operator` is `=` or `!=`."""

    field: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{escape(self.value)}"


class FieldSelector:
    """All terms at once; none of them lets everything through. As with labels, a match takes as
    long as there are fields, not as long as the selector is."""

    __slots__ = ("_denied", "_equal", "terms")

    def __init__(self, terms: Iterable[FieldTerm] = ()) -> None:
        self.terms = tuple(terms)
        equal: dict[str, set[str]] = {}
        denied: dict[str, set[str]] = {}
        for field, operator, value in self.terms:
            (equal if operator == "=" else denied).setdefault(field, set()).add(value)
        self._equal, self._denied = tuple(equal.items()), tuple(denied.items())

    @property
    def empty(self) -> bool:
        """Whether every object matches."""
        return not self.terms

    def matches(self, lookup: Callable[[str], str]) -> bool:
        for field, values in self._equal:
            # No field has two values.
            if len(values) > 1 or lookup(field) not in values:
                return False
        return not any(lookup(field) in values for field, values in self._denied)

    def exact(self, field: str) -> str | None:
        """The one value `field` must have, if a term says so."""
        for term in self.terms:
            if term.field == field and term.operator == "=":
                return term.value
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def __repr__(self) -> str:
        return f"FieldSelector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.terms == other.terms if isinstance(other, FieldSelector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.terms)


@short_cache(1024, longest=1024)
def parse_fields(text: str) -> FieldSelector:
    """The selector a query string spells; ValueError in upstream's words if it spells none."""
    parts = sorted(part for part in _PARTS.findall(text) if part)
    _bound(len(parts) - 1)
    return FieldSelector(_term(part, text) for part in parts)


def escape(value: str) -> str:
    """`value` as it may stand in a field selector."""
    return re.sub(r"([\\,=])", r"\\\1", value)


_PARTS: Final = re.compile(r"(?:[^\\,]|\\.|\\$)+", re.DOTALL)
_OPERATOR: Final = re.compile(r"!=|==?")
_ESCAPED_OR_SPECIAL: Final = re.compile(r"\\.?|[,=]", re.DOTALL)


def _term(part: str, selector: str) -> FieldTerm:
    operator = _OPERATOR.search(part)
    if operator is None:
        raise ValueError(f"invalid selector: '{selector}'; can't understand '{part}'")
    value = _ESCAPED_OR_SPECIAL.sub(_unescaped, part[operator.end() :])
    return FieldTerm(part[: operator.start()], "!=" if operator[0] == "!=" else "=", value)


def _unescaped(found: re.Match[str]) -> str:
    text = found[0]
    if text in ("\\\\", "\\,", "\\="):
        return text[1]
    if text[0] == "\\":
        raise ValueError(f"invalid field selector: invalid escape sequence: {text}")
    # Upstream prints the character's number.
    raise ValueError(f"invalid field selector: unescaped character in value: {ord(text)}")
