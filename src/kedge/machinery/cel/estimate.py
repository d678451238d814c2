"""The estimator: the most that an expression may cost, from the sizes that a schema allows.

It follows cel-go's estimator and Kubernetes' prices exactly, odd ones included: a change in either
direction would accept or refuse other CustomResourceDefinitions than a real server does.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from kedge.machinery.cel.syntax import (
    CallNode,
    Constant,
    Fold,
    ListNode,
    MapNode,
    Member,
    Name,
    Node,
    ObjectNode,
)
from kedge.machinery.cel.types import SCALARS, CelType, same

MOST: Final = (1 << 64) - 1
Path = tuple[str, ...]
Sizes = Callable[[Path], int | None]
"""Returns the largest size of the value at a path, whose first part is the variable."""


class Bounds(NamedTuple):
    """The least and the most of a size or a cost."""

    least: int
    most: int

    def plus(self, other: "Bounds") -> "Bounds":
        """Return the sum."""
        return Bounds(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def times(self, other: "Bounds") -> "Bounds":
        """Return the product."""
        return Bounds(min(self.least * other.least, MOST), min(self.most * other.most, MOST))

    def factor(self, factor: float) -> "Bounds":
        """Return the product with a number, rounded up."""
        return Bounds(_scaled(self.least, factor), _scaled(self.most, factor))

    def or_(self, other: "Bounds") -> "Bounds":
        """Return bounds that hold for both."""
        return Bounds(min(self.least, other.least), max(self.most, other.most))


def _scaled(value: int, factor: float) -> int:
    if value >= MOST:
        return MOST if factor > 0 else 0
    scaled = math.ceil(float(value) * factor) if float(value) * factor < 2.0**64 else MOST
    return min(scaled, MOST)


def fixed(value: int) -> Bounds:
    """Return bounds that are equal."""
    return Bounds(value, value)


UNKNOWN: Final = Bounds(0, MOST)
_ZERO: Final = fixed(0)
_ONE: Final = fixed(1)


class _Entries(NamedTuple):
    kind: str
    key: Bounds
    value: Bounds


class _Local(NamedTuple):
    path: Path
    size: Bounds | None
    entries: _Entries | None


class _Price(NamedTuple):
    cost: Bounds
    size: Bounds | None = None


class _Argument(NamedTuple):
    node: Node | None
    type: CelType
    path: Path
    size: Bounds | None


def estimated(tree: Node, sizes: Sizes | None) -> int:
    """Return the most that a checked expression may cost."""
    return _Estimator(sizes or (lambda path: None)).cost(tree).most


class _Estimator:
    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._paths: dict[int, Path] = {}
        self._computed: dict[int, Bounds] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Bounds:
        if isinstance(node, Constant):
            return _ZERO
        if isinstance(node, Name):
            local = self._local(node.name)
            self._paths[id(node)] = local.path if local else (node.name,)
            return _ONE
        if isinstance(node, Member):
            return self._member(node)
        if isinstance(node, CallNode):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        if isinstance(node, ObjectNode):
            total = fixed(40)
            for entry in node.entries:
                total = total.plus(self.cost(entry.value))
            return total
        assert isinstance(node, Fold)
        return self._bound(node) if node.macro == "bind" else self._fold(node)

    def _local(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _path(self, node: Node) -> Path:
        if isinstance(node, Name):
            local = self._local(node.name)
            if local is not None:
                return local.path
        return self._paths.get(id(node), ())

    def _size(self, node: Node) -> Bounds | None:
        if id(node) in self._computed:
            return self._computed[id(node)]
        if isinstance(node, Constant):
            value = node.value
            return fixed(len(value)) if isinstance(value, str | bytes) else _ONE
        if isinstance(node, ListNode):
            return fixed(len(node.elements))
        if isinstance(node, MapNode):
            return fixed(len(node.entries))
        path = self._path(node)
        if path:
            found = self._sizes(path)
            if found is not None:
                self._computed[id(node)] = Bounds(0, found)
                return Bounds(0, found)
        if _is_scalar(node.type):
            return _ONE
        if isinstance(node, Name):
            local = self._local(node.name)
            if local is not None:
                return local.size
        return None

    def _size_or_unknown(self, node: Node) -> Bounds:
        return self._size(node) or UNKNOWN

    def _entry_sizes(self, node: Node) -> _Entries | None:
        if id(node) in self._entries:
            return self._entries[id(node)]
        if isinstance(node, Name):
            local = self._local(node.name)
            if local is not None:
                return local.entries
        return None

    def _member(self, node: Member) -> Bounds:
        if node.variable:
            self._paths[id(node)] = (node.variable,)
            return _ONE
        total = self.cost(node.operand)
        if node.presence:
            return total
        if node.operand.type.kind in ("map", "object", "parameter"):
            total = total.plus(_ONE)
        path = self._path(node.operand)
        self._paths[id(node)] = (*path, node.field)
        return total

    def _list(self, node: ListNode) -> Bounds:
        total = fixed(10)
        items = Bounds(MOST, 0) if node.elements else _ZERO
        for each in node.elements:
            total = total.plus(self.cost(each))
            items = items.or_(self._size_or_unknown(each))
        self._entries[id(node)] = _Entries("list", _ONE, items)
        return total

    def _map(self, node: MapNode) -> Bounds:
        total = fixed(30)
        keys = values = Bounds(MOST, 0) if node.entries else _ZERO
        for entry in node.entries:
            total = total.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            keys = keys.or_(self._size_or_unknown(entry.key))
            values = values.or_(self._size_or_unknown(entry.value))
        self._entries[id(node)] = _Entries("map", keys, values)
        return total

    def _bound(self, node: Fold) -> Bounds:
        total = self.cost(node.range).plus(self.cost(node.init))
        self._push_value(node.accumulator, node.init)
        total = total.plus(self.cost(node.result))
        self._copy_sizes(node, node.result)
        self._locals[node.accumulator].pop()
        return total

    def _push_value(self, name: str, node: Node) -> None:
        local = _Local(self._path(node), self._size(node), self._entry_sizes(node))
        self._push(name, local)

    def _copy_sizes(self, to: Node, source: Node) -> None:
        size, entries = self._size(source), self._entry_sizes(source)
        if size is not None:
            self._computed[id(to)] = size
        if entries is not None:
            self._entries[id(to)] = entries

    def _fold(self, node: Fold) -> Bounds:
        total = self.cost(node.range).plus(self.cost(node.init))
        self._push_value(node.accumulator, node.init)
        self._push_elements(node)
        loop = self.cost(node.condition)
        step = self.cost(node.step)
        step_entries = self._entry_sizes(node.step)
        self._locals[node.variable].pop()
        if node.variable2:
            self._locals[node.variable2].pop()
        total = total.plus(self.cost(node.result))
        self._locals[node.accumulator].pop()
        count = self._size_or_unknown(node.range)
        total = total.plus(count.times(step.plus(loop)))
        if isinstance(node.init, Constant):
            self._computed[id(node)] = _ONE
        elif isinstance(node.init, ListNode | MapNode):
            self._computed[id(node)] = count
            if step_entries is not None:
                self._entries[id(node)] = step_entries
        return total

    def _push_elements(self, node: Fold) -> None:
        entries = self._entry_sizes(node.range)
        path = self._path(node.range)
        is_list = (entries.kind if entries else node.range.type.kind) == "list"
        key = entries.key if entries else None
        value = entries.value if entries else None
        if node.variable2:
            at = "@indices" if is_list else "@keys"
            self._push(node.variable, _Local((*path, at), key, None))
            at = "@items" if is_list else "@values"
            self._push(node.variable2, _Local((*path, at), value, None))
        elif is_list:
            self._push(node.variable, _Local((*path, "@items"), value, None))
        else:
            self._push(node.variable, _Local((*path, "@keys"), key, None))

    def _call(self, node: CallNode) -> Bounds:
        if node.function == "dyn":
            cost = self.cost(node.arguments[0])
            self._copy_sizes(node, node.arguments[0])
            return cost.plus(_ONE)
        costs = [self.cost(each) for each in node.arguments]
        arguments = [self._argument(each) for each in node.arguments]
        total, target = _ZERO, None
        if node.target is not None:
            total = self.cost(node.target)
            target = self._argument(node.target)
        price, size = Bounds(MOST, 0), None
        for overload in node.overloads:
            found = self._price(node, overload.id, target, arguments, costs)
            price = price.or_(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.or_(found.size)
            if overload.id in ("index_list", "index_map"):
                entries = self._entry_sizes(node.arguments[0])
                size = entries.value if entries else None
                at = "@items" if overload.id == "index_list" else "@values"
                self._paths[id(node)] = (*self._path(node.arguments[0]), at)
            if size is None:
                size = self._size(node)
        if size is not None:
            self._computed[id(node)] = size
        return total.plus(price)

    def _argument(self, node: Node) -> _Argument:
        path = self._path(node)
        if path and path[0] == Fold.ACCUMULATOR:
            path = ()
        return _Argument(node, node.type, path, self._size(node))

    def size(self, argument: _Argument) -> Bounds:
        """Return the size of an argument, or that of the schema at its path."""
        if argument.size is not None:
            return argument.size
        found = self._sizes(argument.path) if argument.path else None
        return UNKNOWN if found is None else Bounds(0, found)

    def _price(
        self,
        node: CallNode,
        overload: str,
        target: _Argument | None,
        arguments: list[_Argument],
        costs: list[Bounds],
    ) -> _Price:
        if overload in ("logical_or", "logical_and"):
            return _Price(Bounds(costs[0].least, costs[0].plus(costs[1]).most))
        if overload == "conditional":
            return self._conditional(node, arguments, costs)
        given = _ZERO
        for cost in costs:
            given = given.plus(cost)
        found = self._library(node, overload, target, arguments)
        if found is None:
            found = self._standard(node, overload, target, arguments)
        return _Price(found.cost.plus(given), found.size)

    def _conditional(
        self, node: CallNode, arguments: list[_Argument], costs: list[Bounds]
    ) -> _Price:
        one, other = arguments[1], arguments[2]
        size = (one.size or UNKNOWN).or_(other.size or UNKNOWN)
        self._join_entries(node, node.arguments[1], node.arguments[2])
        return _Price(costs[0].plus(costs[1].or_(costs[2])), size)

    def _join_entries(self, node: Node, one: Node, other: Node) -> None:
        first, second = self._entry_sizes(one), self._entry_sizes(other)
        if first is not None and second is not None:
            joined = _Entries(first.kind, first.key.or_(second.key), first.value.or_(second.value))
            self._entries[id(node)] = joined

    def _standard(
        self, node: CallNode, overload: str, target: _Argument | None, arguments: list[_Argument]
    ) -> _Price:
        """Return the price that cel-go gives to a standard function."""
        sizes = [each.size or UNKNOWN for each in arguments]
        own = (target.size or UNKNOWN) if target else UNKNOWN
        if overload == "string_format":
            return _Price(own.factor(0.1))
        if overload == "string_to_bytes":
            size = Bounds(sizes[0].least, sizes[0].most * 4 & MOST)
            return _Price(sizes[0].factor(0.1), size)
        if overload == "bytes_to_string":
            return _Price(sizes[0].factor(0.1), Bounds(sizes[0].least // 4, sizes[0].most))
        if overload == "strings_quote":
            size = Bounds(sizes[0].least + 2, (sizes[0].most * 2 + 2) & MOST)
            return _Price(sizes[0].factor(0.1), size)
        if overload in ("starts_with_string", "ends_with_string"):
            return _Price(sizes[0].factor(0.1))
        if overload == "in_list":
            return _Price(sizes[1].factor(1))
        if overload == "matches_string":
            return _Price(own.plus(_ONE).factor(0.1).times(sizes[0].factor(0.25)))
        if overload == "contains_string":
            return _Price(own.factor(0.1).times(sizes[0].factor(0.1)))
        if overload in ("add_string", "add_bytes", "add_list"):
            size = sizes[0].plus(sizes[1])
            self._join_entries(node, node.arguments[0], node.arguments[1])
            return _Price(_ONE if overload == "add_list" else size.factor(0.1), size)
        if overload in _COMPARED:
            smallest = min(sizes[0].most, sizes[1].most)
            return _Price(Bounds(1 if smallest > 0 else 0, smallest).factor(0.1))
        return _Price(_ONE)

    def _library(
        self, node: CallNode, overload: str, target: _Argument | None, arguments: list[_Argument]
    ) -> _Price | None:
        """Return the price that Kubernetes or an extension gives to a function."""
        listed = self._list_price(node, overload, target, arguments)
        if listed is not None:
            return listed
        price = _PRICES.get(node.function)
        return price(self, overload, target, arguments) if price else None

    def _list_price(
        self, node: CallNode, overload: str, target: _Argument | None, arguments: list[_Argument]
    ) -> _Price | None:
        if overload in ("list_sets_contains_list", "list_sets_intersects_list"):
            return _Price(self.size(arguments[0]).times(self.size(arguments[1])).plus(_ONE))
        if overload == "list_sets_equivalent_list":
            product = self.size(arguments[0]).times(self.size(arguments[1]))
            return _Price(product.factor(2).plus(_ONE))
        if overload == "lists_range":
            return _allocated(1, fixed(_literal(node.arguments[0], MOST)))
        if target is None:
            return None
        own = self.size(target)
        if overload == "list_slice":
            start = _literal(node.arguments[0], 0)
            end = _literal(node.arguments[1], own.most)
            return _allocated(1, fixed((end - start) & MOST))
        if overload == "list_reverse":
            return _allocated(1, own)
        if overload in ("list_flatten", "list_flatten_int"):
            depth = _literal(node.arguments[0], MOST) if arguments else 1
            return _allocated(float(depth), own)
        if overload == "list_distinct":
            return _allocated(2.0, own.times(own))
        if overload.endswith("_sort"):
            return self._sorted(target)
        if overload.endswith("_sortByAssociatedKeys"):
            return self._sorted(arguments[0])
        return None

    def _sorted(self, values: _Argument) -> _Price:
        size = self.size(values)
        element = values.type.parameters[0].kind if values.type.parameters else "dyn"
        return _allocated(2.1 if element in ("string", "bytes") else 2.0, size.times(size))


def _literal(node: Node, otherwise: int) -> int:
    value = node.value if isinstance(node, Constant) else None
    return value & MOST if type(value) is int else otherwise


def _allocated(factor: float, size: Bounds) -> _Price:
    return _Price(size.factor(factor).plus(fixed(11)), size)


_COMPARED: Final = frozenset(
    {"equals", "not_equals"}
    | {
        f"{word}_{type}"
        for word in ("less", "less_equals", "greater", "greater_equals")
        for type in ("string", "bytes")
    }
)


def _is_scalar(type: CelType) -> bool:
    if type.kind == "optional":
        return _is_scalar(type.parameters[0])
    return type.kind in SCALARS


_Pricing = Callable[[_Estimator, str, _Argument | None, list[_Argument]], _Price | None]


def _flat(cost: int) -> _Pricing:
    return lambda estimator, overload, target, arguments: _Price(fixed(cost))


def _selector(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    size = estimator.size(arguments[0])
    return _Price(fixed(10).plus(size.factor(0.1)).plus(size.factor(0.5).factor(50)))


def _traversed_list(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    if target is None:
        return None
    if not target.type.parameters:
        return _Price(estimator.size(target).factor(0.1))
    each, element = _ONE, target.type.parameters[0]
    if element.kind in ("string", "bytes"):
        each = each.plus(estimator.size(_element(target)).factor(0.1))
    return _Price(estimator.size(target).times(each))


def _element(values: _Argument) -> _Argument:
    path = (*values.path, "@items") if values.path else ()
    return _Argument(None, values.type.parameters[0], path, None)


def _first(factor: float, *, sized: bool = False) -> _Pricing:
    """Return a price by the size of the first argument."""

    def price(
        estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
    ) -> _Price | None:
        if not arguments:
            return None
        size = estimator.size(arguments[0])
        return _Price(size.factor(factor), size if sized else None)

    return price


def _target(factor: float) -> _Pricing:
    """Return a price by the size of the target, which is also that of the result."""

    def price(
        estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
    ) -> _Price | None:
        if target is None:
            return None
        size = estimator.size(target)
        return _Price(size.factor(factor), size)

    return price


def _replace(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    if target is None or len(arguments) < 2:
        return None
    size, old, new = (estimator.size(each) for each in (target, arguments[0], arguments[1]))
    # The longest result, then the shortest one: an empty pattern matches around each character.
    if old.least == 0:
        longest = (min(size.most + 1, MOST), size.most)
    elif new.most <= old.least:
        longest = (0, size.most)
    else:
        longest = (math.ceil(size.most / old.least), 0)
    if old.most == 0:
        shortest = (min(size.least + 1, MOST), size.least)
    elif old.most <= new.least:
        shortest = (0, size.least)
    else:
        shortest = (math.ceil(size.least / old.most), 0)
    count, kept = Bounds(shortest[0], longest[0]), Bounds(shortest[1], longest[1])
    return _Price(size.factor(0.2), count.times(new).plus(kept))


def _split(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    if target is None:
        return None
    size = estimator.size(target)
    most = size.most
    if len(arguments) > 1 and isinstance(arguments[1].node, Constant):
        most = _literal(arguments[1].node, most)
    return _Price(size.factor(0.2), Bounds(0, most))


def _join(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    if target is None:
        return None
    count, size = estimator.size(target), _ZERO
    if target.type.parameters:
        size = count.times(estimator.size(_element(target)))
    if arguments:
        gaps = Bounds(max(0, count.least - 1), max(0, count.most - 1))
        size = size.plus(estimator.size(arguments[0]).times(gaps))
    return _Price(size.factor(0.1), size)


def _find(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    if target is None or not arguments:
        return None
    size = estimator.size(target)
    cost = size.plus(_ONE).factor(0.1).times(estimator.size(arguments[0]).factor(0.25))
    return _Price(cost, Bounds(0, size.most))


def _ip(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    if overload == "cidr_ip":
        return _Price(_ONE)
    return _Price(estimator.size(arguments[0]).factor(0.1)) if arguments else None


_ADDRESS: Final = Bounds(4, 16)


def _contains_ip(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    cost = _ADDRESS.plus(_ADDRESS).factor(0.1)
    if overload == "cidr_contains_ip_string":
        cost = cost.plus(estimator.size(arguments[0]).factor(0.1))
    return _Price(cost)


def _contains_cidr(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    cost = _ADDRESS.plus(_ADDRESS).factor(0.1).plus(_ADDRESS.factor(0.1)).plus(_ONE)
    if overload == "cidr_contains_cidr_string":
        cost = cost.plus(estimator.size(arguments[0]).factor(0.1))
    return _Price(cost)


def _validate(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    return _Price(estimator.size(arguments[0]).factor(0.1).factor(128 * 0.25))


def _equal(
    estimator: _Estimator, overload: str, target: _Argument | None, arguments: list[_Argument]
) -> _Price | None:
    one, other = arguments
    if one.type.kind != "opaque" or not same(one.type, other.type):
        return None
    if one.type.name == "kubernetes.NamedFormat":
        return _Price(Bounds(1, 64).factor(0.1))
    if one.type.name == "kubernetes.URL":
        size = other.size.most if other.size is not None else 1
        return _Price(Bounds(1, size).factor(0.1))
    return _Price(_ONE)


_PRICES: Final[dict[str, _Pricing]] = {
    "check": _flat(350_000),
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversed_list),
    "url": _first(0.1, sized=True),
    "jsonpatch.escapeKey": _first(0.1, sized=True),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _target(0.1)),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _first(0.1)
    ),
    "ip": _ip,
    "ip.isCanonical": _first(0.2),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
}
