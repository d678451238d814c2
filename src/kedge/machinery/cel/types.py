"""CEL types, and whether a value of one type may stand where another is declared."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from kedge.machinery.cel.errors import CelError


class CelType:
    """A type: its kind, its printed name, and the types it is made of."""

    __slots__ = ("fields", "keys", "kind", "name", "parameters")

    def __init__(
        self,
        kind: str,
        name: str,
        parameters: tuple["CelType", ...] = (),
        fields: "Mapping[str, CelType] | None" = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.parameters = parameters
        self.fields = fields
        """Fields of an object type; None if any field may be selected."""
        self.keys = keys or {}
        """Keys in documents of those fields that expressions name otherwise."""

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    def __repr__(self) -> str:
        return str(self)


DYN: Final = CelType("dyn", "dyn")
ERROR: Final = CelType("error", "!error!")
BOOL: Final = CelType("bool", "bool")
INT: Final = CelType("int", "int")
UINT: Final = CelType("uint", "uint")
DOUBLE: Final = CelType("double", "double")
STRING: Final = CelType("string", "string")
BYTES: Final = CelType("bytes", "bytes")
NULL: Final = CelType("null", "null")
TIMESTAMP: Final = CelType("timestamp", "timestamp")
DURATION: Final = CelType("duration", "duration")
ANY_TYPE: Final = CelType("type", "type")

QUANTITY: Final = CelType("opaque", "kubernetes.Quantity")
IP: Final = CelType("opaque", "net.IP")
CIDR: Final = CelType("opaque", "net.CIDR")
URL: Final = CelType("opaque", "kubernetes.URL")
SEMVER: Final = CelType("opaque", "kubernetes.Semver")
FORMAT: Final = CelType("opaque", "kubernetes.NamedFormat")

SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})


@lru_cache(maxsize=1024)
def list_of(element: CelType) -> CelType:
    """Return the type of lists of an element type."""
    return CelType("list", "list", (element,))


@lru_cache(maxsize=1024)
def map_of(key: CelType, value: CelType) -> CelType:
    """Return the type of maps."""
    return CelType("map", "map", (key, value))


@lru_cache(maxsize=1024)
def optional_of(value: CelType) -> CelType:
    """Return the type of optional values."""
    return CelType("optional", "optional_type", (value,))


@lru_cache(maxsize=1024)
def type_of(value: CelType) -> CelType:
    """Return the type of types."""
    return CelType("type", "type", (value,))


@lru_cache(maxsize=64)
def parameter(name: str) -> CelType:
    """Return a type parameter of a function."""
    return CelType("parameter", name)


def object_of(
    name: str, fields: Mapping[str, CelType] | None, keys: Mapping[str, str] | None = None
) -> CelType:
    """Return a new object type; two of them are the same if they have the same name."""
    return CelType("object", name, (), fields, keys)


_MOST_STEPS: Final = 300_000
"""Types that the check of one expression may look at: a fifth of a second."""


class Substitution:
    """The types that stand for type parameters, as far as the arguments of calls show them."""

    __slots__ = ("_bound", "_fresh", "_steps", "_trail")

    def __init__(self) -> None:
        self._bound: dict[str, CelType] = {}
        self._trail: list[str] = []
        """Parameters in the order in which they were bound."""
        self._fresh = 0
        self._steps = 0

    def _step(self) -> None:
        """Count a type that is looked at. Types share their parts: a small expression can have a
        type that is a tree of any size."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise CelError("expression is too complex")

    def fresh(self) -> CelType:
        """Return a parameter that stands for nothing yet."""
        self._fresh += 1
        return CelType("parameter", f"_var{self._fresh}")

    def resolve(self, type: CelType) -> CelType:
        """Return a type with its parameters replaced; unbound ones become dyn."""
        self._step()
        if type.kind == "parameter":
            bound = self._bound.get(type.name)
            return DYN if bound is None else self.resolve(bound)
        if not type.parameters:
            return type
        return _rebuilt(type, tuple(self.resolve(each) for each in type.parameters))

    def seen(self, type: CelType) -> CelType:
        """Return what a parameter stands for, or the type itself."""
        while type.kind == "parameter" and type.name in self._bound:
            type = self._bound[type.name]
        return type

    def assign_all(self, declared: list[CelType], given: list[CelType]) -> bool:
        """Bind parameters so that all arguments fit; change nothing if they do not."""
        before = len(self._trail)
        for one, other in zip(declared, given, strict=True):
            if not self._assign(one, other):
                for name in self._trail[before:]:
                    del self._bound[name]
                del self._trail[before:]
                return False
        return True

    def assign(self, declared: CelType, given: CelType) -> bool:
        """Tell whether a given type fits a declared one, binding parameters."""
        return self.assign_all([declared], [given])

    def _assign(self, one: CelType, other: CelType) -> bool:
        self._step()
        one, other = self.seen(one), self.seen(other)
        if one is other:
            return True
        if one.kind == "parameter":
            return self._bind(one, other)
        if other.kind == "parameter":
            return self._bind(other, one)
        if one.kind in ("dyn", "error") or other.kind in ("dyn", "error"):
            return True
        if one.kind == "null":
            return other.kind in _NULLABLE
        if other.kind == "null":
            return one.kind in _NULLABLE
        if one.kind != other.kind or one.name != other.name:
            return False
        if one.kind == "type":
            return True
        return len(one.parameters) == len(other.parameters) and all(
            self._assign(a, b) for a, b in zip(one.parameters, other.parameters, strict=True)
        )

    def _bind(self, variable: CelType, type: CelType) -> bool:
        if type.kind == "parameter" and type.name == variable.name:
            return True
        if self._occurs(variable.name, type):
            return False
        self._bound[variable.name] = type
        self._trail.append(variable.name)
        return True

    def _occurs(self, name: str, type: CelType) -> bool:
        self._step()
        type = self.seen(type)
        if type.kind == "parameter":
            return type.name == name
        return any(self._occurs(name, each) for each in type.parameters)

    def widen(self, declared: CelType, to: CelType) -> None:
        """Let a parameter stand for a wider type."""
        if declared.kind == "parameter":
            self._bound[declared.name] = to


_NULLABLE: Final = frozenset({"null", "object", "opaque", "optional", "timestamp", "duration"})


def _rebuilt(type: CelType, parameters: tuple[CelType, ...]) -> CelType:
    if type.kind == "list":
        return list_of(parameters[0])
    if type.kind == "map":
        return map_of(parameters[0], parameters[1])
    if type.kind == "optional":
        return optional_of(parameters[0])
    if type.kind == "type":
        return type_of(parameters[0])
    return CelType(type.kind, type.name, parameters, type.fields, type.keys)


def instantiated(type: CelType, fresh: dict[str, CelType], substitution: Substitution) -> CelType:
    """Return a declared type with fresh parameters in place of its own."""
    if type.kind == "parameter":
        if type.name not in fresh:
            fresh[type.name] = substitution.fresh()
        return fresh[type.name]
    if not type.parameters:
        return type
    return _rebuilt(
        type, tuple(instantiated(each, fresh, substitution) for each in type.parameters)
    )


def same(one: CelType, other: CelType) -> bool:
    """Tell whether two types are equal."""
    if one is other:
        return True
    return (
        one.kind == other.kind
        and one.name == other.name
        and len(one.parameters) == len(other.parameters)
        and all(same(a, b) for a, b in zip(one.parameters, other.parameters, strict=True))
    )
