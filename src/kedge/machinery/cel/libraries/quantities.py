"""Quantities such as `100m` and `1Gi`."""

from typing import Any, ClassVar, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import Functions, first_traversed, function, library, method
from kedge.machinery.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING
from kedge.machinery.cel.values import INT_MAX, INT_MIN
from kedge.machinery.quantity import Quantity

_NANOS: Final = 10**9


class QuantityValue:
    """A quantity as a value of expressions."""

    __slots__ = ("amount", "decimal")

    cel_type: ClassVar[str] = QUANTITY.name

    def __init__(self, amount: Quantity, *, decimal: bool = False) -> None:
        self.amount = amount
        self.decimal = decimal
        """Whether upstream holds it with a scale, so that it is no integer for `asInteger`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuantityValue) and self.amount == other.amount

    def __hash__(self) -> int:
        return hash(self.amount)


def quantity_of(text: str) -> QuantityValue:
    """Return the quantity that a text spells, or raise a CelError in upstream's words."""
    try:
        amount = Quantity.parse(text)
    except ValueError as error:
        raise CelError(str(error)) from None
    # Upstream keeps a fraction with a binary suffix as an exact decimal, which it does not turn
    # into an integer even if it is one.
    return QuantityValue(amount, decimal="." in text and text.endswith("i"))


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except ValueError:
        return False
    return True


def _is_integer(value: QuantityValue) -> bool:
    whole, rest = divmod(value.amount.nanos, _NANOS)
    return not value.decimal and rest == 0 and INT_MIN <= whole <= INT_MAX


def _as_integer(value: QuantityValue) -> int:
    if not _is_integer(value):
        raise CelError("cannot convert value to integer")
    return value.amount.nanos // _NANOS


def _sign(value: QuantityValue) -> int:
    return (value.amount.nanos > 0) - (value.amount.nanos < 0)


def _compare(one: QuantityValue, other: QuantityValue) -> int:
    return (one.amount.nanos > other.amount.nanos) - (one.amount.nanos < other.amount.nanos)


def _amount(value: Any) -> Quantity:
    return Quantity.from_value(value) if isinstance(value, int) else value.amount


def _add(one: QuantityValue, other: Any) -> QuantityValue:
    return QuantityValue(one.amount + _amount(other), decimal=one.decimal)


def _subtract(one: QuantityValue, other: Any) -> QuantityValue:
    return QuantityValue(one.amount - _amount(other), decimal=one.decimal)


_ONE: Final = (QUANTITY,)
_TWO: Final = (QUANTITY, QUANTITY)

QUANTITIES: Final[Functions] = library(
    quantity=(function("string_to_quantity", (STRING,), QUANTITY, quantity_of, first_traversed),),
    isQuantity=(function("is_quantity_string", (STRING,), BOOL, _is_quantity, first_traversed),),
    sign=(function("quantity_sign", _ONE, INT, _sign),),
    isGreaterThan=(
        method("quantity_is_greater_than", _TWO, BOOL, lambda a, b: _compare(a, b) > 0),
    ),
    isLessThan=(method("quantity_is_less_than", _TWO, BOOL, lambda a, b: _compare(a, b) < 0),),
    compareTo=(method("quantity_compare_to", _TWO, INT, _compare),),
    asApproximateFloat=(
        method("quantity_get_float", _ONE, DOUBLE, lambda q: q.amount.nanos / _NANOS),
    ),
    asInteger=(method("quantity_get_int", _ONE, INT, _as_integer),),
    isInteger=(method("quantity_is_integer", _ONE, BOOL, _is_integer),),
    add=(
        method("quantity_add", _TWO, QUANTITY, _add),
        method("quantity_add_int", (QUANTITY, INT), QUANTITY, _add),
    ),
    sub=(
        method("quantity_sub", _TWO, QUANTITY, _subtract),
        method("quantity_sub_int", (QUANTITY, INT), QUANTITY, _subtract),
    ),
)
