"""Exact amounts such as `100m` or `1536Mi`, printed the way Kubernetes prints them."""

import re
from enum import Enum
from functools import lru_cache
from typing import Final


class Format(Enum):
    """The family of suffixes an amount is printed with."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


FORMAT_WRONG: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
SUFFIX_WRONG: Final = "unable to parse quantity's suffix"
NUMBER_WRONG: Final = "unable to parse numeric part of quantity"

_NANOS: Final = 10**9
_NANOS_PER_MILLI: Final = 10**6
_LARGEST_BINARY: Final = (2**63 - 1) * _NANOS

# Upstream would take any exponent and then spend hours printing it. A thousand digits either side
# of the point is far beyond every real amount and keeps each operation instant.
_MOST_DIGITS: Final = 1000

_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_EXPONENTS: Final = {suffix: 3 * i - 9 for i, suffix in enumerate(_DECIMAL_SUFFIXES)}
_BINARY_EXPONENTS: Final = {s: 10 * i for i, s in enumerate(_BINARY_SUFFIXES) if s}

_SPLIT: Final = re.compile(
    r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)"
).fullmatch
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]{1,18})").fullmatch


class Quantity:
    """An immutable amount, exact to the nano, and the family of suffixes it is written with.

    Equality, order and hash look at the amount alone: `1`, `1000m` and `1e0` are equal.
    """

    __slots__ = ("_text", "format", "nanos")

    nanos: Final[int]
    format: Final[Format]

    def __init__(self, nanos: int, format: Format = Format.DECIMAL_SI, _text: str = "") -> None:
        self.nanos = nanos
        self.format = format
        self._text = _text

    @staticmethod
    def parse(text: str) -> "Quantity":
        """The amount `text` spells; ValueError in upstream's words if it spells none."""
        return _parse(text)

    @staticmethod
    def of(value: str | int | float) -> "Quantity":
        """The amount a JSON string or number stands for."""
        if isinstance(value, str):
            return _parse(value.strip())
        if isinstance(value, bool):
            raise ValueError(FORMAT_WRONG)
        return _parse(repr(value))

    @staticmethod
    def from_value(value: int, format: Format = Format.DECIMAL_SI) -> "Quantity":
        """That many whole units."""
        return Quantity(value * _NANOS, format)

    @staticmethod
    def from_milli(milli: int, format: Format = Format.DECIMAL_SI) -> "Quantity":
        """That many thousandths of a unit."""
        return Quantity(milli * _NANOS_PER_MILLI, format)

    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _divided(self.nanos, _NANOS)

    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return _divided(self.nanos, _NANOS_PER_MILLI)

    def rounded_to_milli(self) -> "Quantity":
        """The same amount without anything finer than a thousandth, rounded away from zero."""
        if self.nanos % _NANOS_PER_MILLI == 0:
            return self
        return Quantity.from_milli(self.milli(), self.format)

    def __str__(self) -> str:
        if not self._text:
            self._text = _canonical(self.nanos, self.format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, (self if self.nanos else other).format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, (self if self.nanos else other).format)

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: "Quantity") -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: "Quantity") -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: "Quantity") -> bool:
        return self.nanos >= other.nanos


LARGEST: Final = Quantity(_LARGEST_BINARY)
"""Every amount up to this one is read as it was written."""


def times(one: Quantity, other: Quantity) -> str:
    """How many times the other goes into the one, to six decimals, as upstream prints it."""
    try:
        return f"{one.nanos / other.nanos:f}"
    except OverflowError:
        # Beyond what upstream could have printed, so that nothing is lost by cutting off.
        return f"{one.nanos // other.nanos}.000000"


@lru_cache(maxsize=8192)
def _parse(text: str) -> Quantity:
    split = _SPLIT(text)
    if not text or split is None:
        raise ValueError(FORMAT_WRONG)
    sign, whole, fraction, suffix = split.groups("")
    if len(whole) + len(fraction) > _MOST_DIGITS:
        raise ValueError(NUMBER_WRONG)
    if suffix in _BINARY_EXPONENTS:
        return _binary(text, sign, whole, fraction, _BINARY_EXPONENTS[suffix])
    exponent = _DECIMAL_EXPONENTS.get(suffix)
    if exponent is not None:
        return _decimal(text, sign, whole, fraction, exponent, Format.DECIMAL_SI)
    if (written := _EXPONENT(suffix)) is None:
        raise ValueError(SUFFIX_WRONG)
    exponent = int(written[1])
    return _decimal(text, sign, whole, fraction, exponent, Format.DECIMAL_EXPONENT)


def _decimal(
    text: str, sign: str, whole: str, fraction: str, exponent: int, format: Format
) -> Quantity:
    digits = (whole or "0") + fraction
    power = exponent - len(fraction)
    nanos = _scaled(int(digits), power + 9)
    echoed = text if _echoes_decimal(digits, power) else ""
    return Quantity(-nanos if sign == "-" else nanos, format, echoed)


def _binary(text: str, sign: str, whole: str, fraction: str, exponent: int) -> Quantity:
    mantissa = int(whole + fraction or "0")
    if fraction:
        nanos = _scaled(mantissa << exponent, 9 - len(fraction))
    else:
        nanos = (mantissa << exponent) * _NANOS
    nanos = min(nanos, _LARGEST_BINARY)
    format = Format.DECIMAL_SI if 0 < nanos < _NANOS else Format.BINARY_SI
    echoed = text if not fraction and _echoes_binary(mantissa, len(whole), exponent) else ""
    return Quantity(-nanos if sign == "-" else nanos, format, echoed)


# Upstream reprints a spelling it takes for canonical although it may not be (`+5`, `1.G`, `1E3`);
# the two rules below say which, so that clients read back what the real server would send.


def _echoes_decimal(digits: str, power: int) -> bool:
    return (
        power % 3 == 0
        and power >= -9
        and len(digits) <= 18
        and digits[0] != "0"
        and not digits.endswith("000")
    )


def _echoes_binary(mantissa: int, digits: int, exponent: int) -> bool:
    return mantissa & 7 != 0 and digits + exponent * 3 // 10 <= 14


def _scaled(mantissa: int, power: int) -> int:
    """`mantissa` times ten to the `power`, a remainder rounded up."""
    if mantissa == 0:
        return 0
    if power >= 0:
        if power > _MOST_DIGITS:
            raise ValueError(NUMBER_WRONG)
        shift: int = 10**power
        return mantissa * shift
    if power < -2 * _MOST_DIGITS:
        return 1
    unit: int = 10**-power
    return -(-mantissa // unit)


def _divided(nanos: int, unit: int) -> int:
    """The quotient rounded away from zero."""
    return -(-nanos // unit) if nanos >= 0 else nanos // unit


def _canonical(nanos: int, format: Format) -> str:
    if nanos == 0:
        return "0"
    if format is Format.BINARY_SI:
        units, rest = divmod(nanos, _NANOS)
        if rest == 0 and not -1024 < units < 1024:
            return _canonical_binary(units)
    mantissa, thousands = _without_factors(nanos, 1000)
    if format is Format.DECIMAL_EXPONENT:
        exponent = 3 * thousands - 9
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    # Upstream forgets the suffix beyond exa, turning 1000E into 1; this stays at exa instead.
    beyond = max(0, thousands - len(_DECIMAL_SUFFIXES) + 1)
    return f"{mantissa * 1000**beyond}{_DECIMAL_SUFFIXES[thousands - beyond]}"


def _canonical_binary(units: int) -> str:
    mantissa, factors = _without_factors(units, 1024)
    beyond = max(0, factors - len(_BINARY_SUFFIXES) + 1)
    return f"{mantissa * 1024**beyond}{_BINARY_SUFFIXES[factors - beyond]}"


def _without_factors(number: int, factor: int) -> tuple[int, int]:
    """`number` divided by `factor` as often as nothing is left over, and how often that was."""
    times = 0
    quotient, rest = divmod(number, factor)
    while rest == 0:
        number, times = quotient, times + 1
        quotient, rest = divmod(number, factor)
    return number, times
