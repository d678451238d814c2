"""Declarations of functions: their overloads, what they do and what they cost."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from kedge.machinery.cel.types import CelType
from kedge.machinery.cel.values import (
    CelDuration,
    Maybe,
    Timestamp,
    TypeValue,
    Uint,
    size_of,
)

Price = Callable[..., int]


class FunctionOverload:
    """One signature of a function."""

    __slots__ = (
        "function", "guards", "id", "implementation", "member", "parameters", "price", "result",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        parameters: Iterable[CelType],
        result: CelType,
        implementation: Callable[..., Any],
        *,
        member: bool = False,
        price: Price | None = None,
        guards: tuple[CelType, ...] | None = None,
    ) -> None:
        self.id = id
        self.function = ""
        self.parameters = tuple(parameters)
        self.guards = guards or self.parameters
        """The types that values are compared with, if their types are known only at run time."""
        self.result = result
        self.implementation = implementation
        self.member = member
        self.price = price
        """The cost of a call with these arguments, computed before the call; 1 if None."""


def method(
    id: str,
    parameters: Iterable[CelType],
    result: CelType,
    implementation: Callable[..., Any],
    price: Price | None = None,
) -> FunctionOverload:
    """Declare an overload that is called on its first parameter."""
    return FunctionOverload(id, parameters, result, implementation, member=True, price=price)


def function(
    id: str,
    parameters: Iterable[CelType],
    result: CelType,
    implementation: Callable[..., Any],
    price: Price | None = None,
) -> FunctionOverload:
    """Declare an overload that is called without a target."""
    return FunctionOverload(id, parameters, result, implementation, price=price)


Functions = dict[str, tuple[FunctionOverload, ...]]


def library(**declared: Iterable[FunctionOverload]) -> Functions:
    """Return functions by name; `__` stands for a dot."""
    return named({name.replace("__", "."): overloads for name, overloads in declared.items()})


def named(declared: dict[str, Iterable[FunctionOverload]]) -> Functions:
    """Return functions by name, each overload knowing its function's name."""
    functions = {name: tuple(overloads) for name, overloads in declared.items()}
    for name, overloads in functions.items():
        for overload in overloads:
            overload.function = name
    return functions


def merged(*libraries: Functions) -> Functions:
    """Return the functions of all libraries; a name may have overloads in several of them."""
    together: Functions = {}
    for each in libraries:
        for name, overloads in each.items():
            together[name] = together.get(name, ()) + overloads
    return together


def traversal(value: Any, factor: float = 0.1) -> int:
    """Return the price of looking at every character or element once."""
    return math.ceil(size_of(value) * factor)


def first_traversed(value: Any, *_: Any) -> int:
    """Return the price of traversing the first argument."""
    return math.ceil(size_of(value) * 0.1)


def first_traversed_twice(value: Any, *_: Any) -> int:
    """Return the price of traversing the first argument and of making a result."""
    return math.ceil(size_of(value) * 2 * 0.1)


_KINDS: Final[dict[str, type]] = {
    "bool": bool,
    "int": int,
    "uint": Uint,
    "double": float,
    "string": str,
    "bytes": bytes,
    "null": type(None),
    "timestamp": Timestamp,
    "duration": CelDuration,
    "optional": Maybe,
    "type": TypeValue,
}


def fits(value: Any, declared: CelType) -> bool:
    """Tell whether a value is of a declared type, as far as its first element shows."""
    kind = declared.kind
    exact = _KINDS.get(kind)
    if exact is not None:
        return type(value) is exact
    if kind == "list":
        if not isinstance(value, list):
            return False
        return not value or fits(value[0], declared.parameters[0])
    if kind == "map":
        return isinstance(value, dict)
    if kind == "opaque":
        return getattr(value, "cel_type", "") == declared.name
    return True
