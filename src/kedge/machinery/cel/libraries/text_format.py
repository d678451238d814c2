"""`format()` of strings: clauses such as `%d` and `%.2f`."""

import json
import math
from collections.abc import Callable
from typing import Any, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.values import (
    MAX_TEXT,
    CelDuration,
    Timestamp,
    TypeValue,
    Uint,
    check_extent,
    go_float,
    type_name,
)

_PRECISION: Final = 6
_MAX_PRECISION: Final = 100
_SUPERSCRIPT: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_GAP: Final = "\u202f"


def format_text(template: str, arguments: list[Any]) -> str:
    """Return the template with its clauses replaced by the arguments."""
    out: list[str] = []
    size = at = used = 0
    while at < len(template):
        mark = template.find("%", at)
        if mark < 0:
            out.append(template[at:])
            break
        out.append(template[at:mark])
        if template[mark + 1 : mark + 2] == "%":
            out.append("%")
            at = mark + 2
            continue
        clause, at = parse_clause(template, mark + 1)
        if used >= len(arguments):
            raise CelError(f"index {used} out of range")
        check_extent(arguments[used])
        text = _clause_text(clause, arguments[used])
        used += 1
        size += len(text)
        if size > MAX_TEXT:
            raise CelError("string size exceeds limit")
        out.append(text)
    return "".join(out)


Clause = Callable[[Any], str]


def _clause_text(clause: "Clause", value: Any) -> str:
    try:
        return clause(value)
    except CelError as error:
        raise CelError(f"error during formatting: {error}") from None


def parse_clause(template: str, at: int) -> tuple[Clause, int]:
    """Return the clause after a percent sign, and where it ends."""
    precision = None
    if template[at : at + 1] == ".":
        end = at + 1
        while template[end : end + 1].isdigit() and template[end].isascii():
            end += 1
        if end == at + 1:
            raise CelError("error while parsing precision: no digits")
        precision = int(template[at + 1 : end][:6])
        if precision > _MAX_PRECISION:
            raise CelError(f"precision exceeds limit: {_MAX_PRECISION}")
        at = end
    if at >= len(template):
        raise CelError("unexpected end of string")
    letter = template[at]
    if letter == "f":
        return lambda value: _fixed(value, precision), at + 1
    if letter == "e":
        return lambda value: _scientific(value, precision), at + 1
    clause = _CLAUSES.get(letter)
    if clause is None:
        raise CelError(f'unrecognized formatting clause "{letter}"')
    return clause, at + 1


def _string(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_element, value))}]"
    if isinstance(value, dict):
        pairs = sorted((_element(key), _element(each)) for key, each in value.items())
        return "{" + ", ".join(f"{key}:{each}" for key, each in pairs) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return {"+Inf": "Infinity", "-Inf": "-Infinity"}.get(go_float(value), go_float(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None:
        return "null"
    if isinstance(value, str | Timestamp | CelDuration):
        return str(value)
    if isinstance(value, TypeValue):
        return value.name
    raise CelError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
        f"types, durations, and timestamps, was given {type_name(value)}"
    )


def _element(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return f"b{json.dumps(_string(value), ensure_ascii=False)}"
    if isinstance(value, Timestamp):
        return f'timestamp("{value}")'
    if isinstance(value, CelDuration):
        return f'duration("{value}")'
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else f'"{_string(value)}"'
    return _string(value)


def _number(value: Any, clause: str) -> float:
    if isinstance(value, float):
        return value
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise CelError(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _fixed(value: Any, precision: int | None) -> str:
    number = _number(value, "fixed-point")
    places = _PRECISION if precision is None else precision
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("∞" if number > 0 else "-∞")
    return f"{number:,.{places}f}"


def _scientific(value: Any, precision: int | None) -> str:
    number = _number(value, "scientific")
    places = _PRECISION if precision is None else precision
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("∞" if number > 0 else "-∞")
    mantissa, _, exponent = f"{number:.{places}e}".partition("e")
    power = int(exponent)
    sign = "⁻" if power < 0 else ""
    raised = f"{abs(power):02d}".translate(_SUPERSCRIPT)
    return f"{mantissa}{_GAP}×{_GAP}10{sign}{raised}"


def _is_integer(value: Any) -> bool:
    return type(value) in (int, Uint)


def _decimal(value: Any) -> str:
    if _is_integer(value):
        return str(int(value))
    raise CelError(f"decimal clause can only be used on integers, was given {type_name(value)}")


def _binary(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if _is_integer(value):
        return f"{int(value):b}"
    why = f"was given {type_name(value)}"
    raise CelError(f"only integers and bools can be formatted as binary, {why}")


def _octal(value: Any) -> str:
    if _is_integer(value):
        return f"{int(value):o}"
    raise CelError(f"octal clause can only be used on integers, was given {type_name(value)}")


def _hex(value: Any) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, bytes):
        return value.hex()
    if _is_integer(value):
        return f"{int(value):x}"
    why = f"was given {type_name(value)}"
    raise CelError(f"only integers, byte buffers, and strings can be formatted as hex, {why}")


_CLAUSES: Final[dict[str, Clause]] = {
    "s": _string,
    "d": _decimal,
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": lambda value: _hex(value).upper(),
}
