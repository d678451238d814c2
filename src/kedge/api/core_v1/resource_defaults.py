"""Rounds amounts to thousandths, as the server stores them."""

from collections.abc import Mapping

from kedge.machinery.quantity import Quantity

_MILLI = 10**6


def rounded(amounts: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """The same amounts, each rounded up to a thousandth where it was finer."""
    for amount in amounts.values():
        if amount.nanos % _MILLI:
            return {name: amount.rounded_to_milli() for name, amount in amounts.items()}
    return amounts
