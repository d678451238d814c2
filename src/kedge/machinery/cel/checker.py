"""The type checker: gives every node a type and every call its overloads."""

from typing import Any

from kedge.machinery.cel.conversions import TYPE_NAMES
from kedge.machinery.cel.environment import Environment
from kedge.machinery.cel.errors import CelIssues
from kedge.machinery.cel.functions import FunctionOverload
from kedge.machinery.cel.libraries.authorizer import AUTHORIZER
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
    children,
)
from kedge.machinery.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    IP,
    NULL,
    QUANTITY,
    SEMVER,
    STRING,
    UINT,
    URL,
    CelType,
    Substitution,
    instantiated,
    list_of,
    map_of,
    optional_of,
    same,
    type_of,
)
from kedge.machinery.cel.values import Uint

_CONSTANTS: dict[type, CelType] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
NAMED_TYPES: dict[str, CelType] = {
    **TYPE_NAMES,
    **{type.name: type for type in (QUANTITY, IP, CIDR, URL, SEMVER, AUTHORIZER)},
    "null_type": NULL,
    "optional_type": optional_of(DYN),
}


def check(node: Node, environment: Environment, issues: CelIssues) -> CelType:
    """Type every node of a tree and return the type of the whole; errors go to the issues."""
    checker = _Checker(environment, issues)
    checker.check(node)
    checker.settle(node)
    return node.type


class _Checker:
    def __init__(self, environment: Environment, issues: CelIssues) -> None:
        self._environment = environment
        self._issues = issues
        self._types = Substitution()
        self._scopes: list[dict[str, CelType]] = []

    def check(self, node: Node) -> CelType:
        node.type = self._typed(node)
        return node.type

    def settle(self, node: Node) -> None:
        """Replace type parameters by what they turned out to stand for."""
        waiting = [node]
        while waiting:
            each = waiting.pop()
            each.type = self._types.resolve(each.type)
            waiting.extend(children(each))

    def _typed(self, node: Node) -> CelType:
        if isinstance(node, Constant):
            return _CONSTANTS[type(node.value)]
        if isinstance(node, Name):
            return self._name(node)
        if isinstance(node, Member):
            return self._member(node)
        if isinstance(node, CallNode):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        if isinstance(node, ObjectNode):
            return self._object(node)
        assert isinstance(node, Fold)
        return self._fold(node)

    def _error(self, node: Node, why: str) -> CelType:
        self._issues.add(node.at, why)
        return ERROR

    def _find(self, name: str) -> CelType | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return self._environment.variables.get(name)

    def _name(self, node: Name) -> CelType:
        found = self._find(node.name)
        if found is not None:
            return found
        named = NAMED_TYPES.get(node.name)
        if named is not None:
            return type_of(named)
        return self._error(node, f"undeclared reference to '{node.name}' (in container '')")

    def _member(self, node: Member) -> CelType:
        qualified = qualified_name(node)
        if qualified and not node.presence:
            variable = self._environment.variables.get(qualified)
            named = NAMED_TYPES.get(qualified)
            if variable is not None or named is not None:
                node.variable = qualified
                self._mark(node.operand)
                return variable if variable is not None else type_of(named)
        operand = self.check(node.operand)
        found = self._field(node, operand, node.field)
        return BOOL if node.presence and found.kind != "error" else found

    def _mark(self, node: Node) -> None:
        """Give the parts of a qualified name a type; they are not evaluated."""
        node.type = DYN
        for each in children(node):
            self._mark(each)

    def _field(self, node: Node, target: CelType, field: str, at: int | None = None) -> CelType:
        target = self._types.seen(target)
        if target.kind == "optional":
            inner = self._field(node, target.parameters[0], field)
            return inner if inner.kind in ("optional", "error") else optional_of(inner)
        if target.kind in ("dyn", "parameter"):
            return DYN
        if target.kind == "error":
            return ERROR
        if target.kind == "map":
            return self._types.seen(target.parameters[1])
        if target.kind == "object":
            if target.fields is None:
                return DYN
            found = target.fields.get(field)
            if found is None:
                return self._error(node, f"undefined field '{field}'")
            return found
        shown = self._types.resolve(target)
        return self._error(node, f"type '{shown}' does not support field selection")

    def _call(self, node: CallNode) -> CelType:
        if node.function == "_?._":
            return self._optional_field(node)
        if node.target is not None:
            qualified = qualified_name(node.target)
            name = f"{qualified}.{node.function}"
            if qualified and name in self._environment.functions:
                node.function, node.target = name, None
        arguments = [self.check(each) for each in node.operands()]
        overloads = self._environment.functions.get(node.function)
        if overloads is None:
            why = f"undeclared reference to '{node.function}' (in container '')"
            return self._error(node, why)
        result = self._resolved(node, overloads, arguments)
        if node.function == "_?_:_" and self._types.resolve(arguments[2]).kind == "dyn":
            # A branch of any type makes the whole of any type, also if it is the second.
            return result if result.kind == "error" else DYN
        return result

    def _optional_field(self, node: CallNode) -> CelType:
        operand, field = node.arguments
        target = self.check(operand)
        self.check(field)
        node.overloads = self._environment.functions["_?._"]
        assert isinstance(field, Constant)
        found = self._field(node, target, field.value)
        return found if found.kind in ("optional", "error") else optional_of(found)

    def _resolved(
        self, node: CallNode, overloads: tuple[FunctionOverload, ...], given: list[CelType]
    ) -> CelType:
        member = node.target is not None
        matched: list[FunctionOverload] = []
        result: CelType | None = None
        for overload in overloads:
            if overload.member is not member or len(overload.parameters) != len(given):
                continue
            fresh: dict[str, CelType] = {}
            declared = [instantiated(each, fresh, self._types) for each in overload.parameters]
            if not self._types.assign_all(declared, given):
                continue
            matched.append(overload)
            mine = instantiated(overload.result, fresh, self._types)
            if result is None:
                result = mine
            elif not same(self._types.resolve(result), self._types.resolve(mine)):
                result = DYN
        if result is None:
            shown = [str(self._types.resolve(each)) for each in given]
            applied = f"({', '.join(shown[member:])})"
            if member:
                applied = f"{shown[0]}.{applied}"
            why = f"found no matching overload for '{node.function}' applied to '{applied}'"
            return self._error(node, why)
        node.overloads = tuple(matched)
        return result

    def _joined(self, previous: CelType | None, current: CelType) -> CelType:
        if previous is None:
            return current
        if self._types.assign(previous, current):
            seen = self._types.seen(previous)
            return current if seen.kind == "parameter" else previous
        return DYN

    def _element(self, node: Node, *, optional: bool) -> CelType:
        found = self.check(node)
        if not optional:
            return found
        seen = self._types.seen(found)
        if seen.kind == "optional":
            return seen.parameters[0]
        if seen.kind not in ("dyn", "error"):
            shown = self._types.resolve(found)
            self._error(node, f"expected type 'optional_type({shown})' but found '{shown}'")
        return DYN

    def _list(self, node: ListNode) -> CelType:
        element: CelType | None = None
        for i, each in enumerate(node.elements):
            element = self._joined(element, self._element(each, optional=i in node.optional))
        return list_of(self._types.fresh() if element is None else element)

    def _map(self, node: MapNode) -> CelType:
        key: CelType | None = None
        value: CelType | None = None
        for entry in node.entries:
            key = self._joined(key, self.check(entry.key))
            value = self._joined(value, self._element(entry.value, optional=entry.optional))
        if key is None or value is None:
            return map_of(self._types.fresh(), self._types.fresh())
        if self._types.seen(key).kind in ("list", "map", "optional", "type"):
            # Never a key of a map. As a type it would double with each map in a map.
            key = DYN
        return map_of(key, value)

    def _object(self, node: ObjectNode) -> CelType:
        found = self._environment.object_type(node.name)
        values = [self._element(entry.value, optional=entry.optional) for entry in node.entries]
        if found is None:
            return self._error(node, f"undeclared reference to '{node.name}' (in container '')")
        for entry, given in zip(node.entries, values, strict=True):
            assert isinstance(entry.key, Constant)
            if found.fields is None:
                continue
            declared = found.fields.get(entry.key.value)
            if declared is None or not self._types.assign(declared, given):
                shown = "" if declared is None else str(declared)
                self._issues.add(
                    entry.at,
                    f"expected type of field '{entry.key.value}' is '{shown}' but provided type "
                    f"is '{self._types.resolve(given)}'",
                )
        return found

    def _fold(self, node: Fold) -> CelType:
        range = self._types.seen(self.check(node.range))
        accumulator = self.check(node.init)
        names = {node.accumulator: accumulator}
        first, second = self._elements(node, range)
        names[node.variable] = first
        if node.variable2:
            names[node.variable2] = second
        self._scopes.append({node.accumulator: accumulator})
        self._scopes.append(names)
        self.check(node.condition)
        step = self.check(node.step)
        if not self._types.assign(accumulator, step):
            shown = f"expected type '{self._types.resolve(accumulator)}' but found"
            self._error(node.step, f"{shown} '{self._types.resolve(step)}'")
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return result

    def _elements(self, node: Fold, range: CelType) -> tuple[CelType, CelType]:
        if range.kind == "list":
            element = range.parameters[0]
            return (INT, element) if node.variable2 else (element, DYN)
        if range.kind == "map":
            return range.parameters[0], range.parameters[1]
        if range.kind not in ("dyn", "error", "parameter"):
            shown = f"expression of type '{self._types.resolve(range)}' cannot be range of a"
            self._error(node.range, f"{shown} comprehension (must be list, map, or dynamic)")
            return ERROR, ERROR
        return DYN, DYN


def qualified_name(node: Node) -> str:
    """Return `a.b.c` for a row of plain selections, else nothing."""
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Member) and not node.presence:
        before = qualified_name(node.operand)
        return f"{before}.{node.field}" if before else ""
    return ""


def references(node: Node) -> set[str]:
    """Return the names of all variables that an expression refers to."""
    found: set[str] = set()
    waiting: list[Any] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Name):
            found.add(each.name)
        elif isinstance(each, Member) and each.variable:
            found.add(each.variable)
            continue
        waiting.extend(children(each))
    return found
