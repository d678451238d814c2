"""The compiler: from a checked tree to closures that take the state of an evaluation.

Costs are those of cel-go's tracker. A closure adds its cost before it does the work, so that a
price limits the work, and not only reports it. Constant parts are computed here, and cost nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from kedge.machinery.cel.checker import NAMED_TYPES
from kedge.machinery.cel.conversions import CONVERSIONS
from kedge.machinery.cel.environment import Environment
from kedge.machinery.cel.errors import CelBudgetError, CelError
from kedge.machinery.cel.folds import FoldParts, compile_fold
from kedge.machinery.cel.functions import FunctionOverload, fits
from kedge.machinery.cel.libraries.optionals import present_at
from kedge.machinery.cel.operators import EscapedKey, index_list, index_map, shown_key
from kedge.machinery.cel.run import Run, no_overload
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
from kedge.machinery.cel.types import SCALARS, CelType
from kedge.machinery.cel.values import Maybe, TypeValue, equal, extra_price, size_of, type_name

Closure = Callable[[Run], Any]

_FAULTS: Final = (TypeError, AttributeError, ValueError, OverflowError, KeyError, IndexError)
"""Errors of an implementation for a value that no overload takes, deep inside a list."""
_FLAT: Final = frozenset({int, float, bool, type(None)})
_FOLDED: Final = frozenset({str, int, bool})
LIST_PRICE: Final = 10
MAP_PRICE: Final = 30
OBJECT_PRICE: Final = 40


class ObjectValue(dict[str, Any]):
    """The value of an object literal: its fields, and the name of its type."""

    __slots__ = ("cel_type",)

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.cel_type = name


class Compiled:
    """A closure; constants know their value."""

    __slots__ = ("constant", "run", "value")

    def __init__(self, run: Closure, *, constant: bool = False, value: Any = None) -> None:
        self.run = run
        self.constant = constant
        self.value = value


def compile_tree(node: Node, environment: Environment) -> tuple[Closure, int]:
    """Return the closure of a checked tree, and how many values an evaluation needs room for."""
    compiler = _Compiler(environment)
    compiled = compiler.compile(node)
    return compiled.run, compiler.room


def _constant(value: Any) -> Compiled:
    def constant(run: Run) -> Any:
        return value

    return Compiled(constant, constant=True, value=value)


def select(container: Any, key: str) -> Any:
    """Return a field of any value, or raise the error of a field that is not there."""
    if isinstance(container, dict):
        if key in container:
            return container[key]
    elif isinstance(container, Maybe):
        return present_at(container, key)
    elif isinstance(container, list):
        raise CelError("unsupported index type 'string' in list")
    else:
        lazy = getattr(container, "cel_field", None)
        if lazy is not None:
            return lazy(key)
    raise CelError(f"no such key: {shown_key(key)}")


def has_field(container: Any, key: str) -> bool:
    """Tell whether a value has a field."""
    if isinstance(container, dict):
        return key in container
    if isinstance(container, Maybe):
        return container.present and has_field(container.value, key)
    if isinstance(container, list):
        raise CelError("unsupported index type 'string' in list")
    return hasattr(container, "cel_field") and container.cel_has(key)


class _Compiler:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._scopes: list[dict[str, int]] = []
        self.room = len(environment.slots)

    def compile(self, node: Node) -> Compiled:
        if isinstance(node, Constant):
            return _constant(node.value)
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

    def _slot(self, name: str) -> int | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return self._environment.slots.get(name)

    def _variable(self, name: str) -> Compiled:
        slot = self._slot(name)
        if slot is None:
            return _constant(TypeValue(_type_name(name)))

        def variable(run: Run) -> Any:
            run.cost += 1
            return run.values[slot]

        return Compiled(variable)

    def _name(self, node: Name) -> Compiled:
        return self._variable(node.name)

    def _member(self, node: Member) -> Compiled:
        if node.variable:
            return self._variable(node.variable)
        key = _document_key(node.operand.type, node.field)
        if node.presence:
            return Compiled(_presence(self.compile(node.operand).run, key))
        if isinstance(node.operand, Name):
            slot = self._slot(node.operand.name)
            if slot is not None:
                return Compiled(_variable_field(slot, key))
        return Compiled(_field(self.compile(node.operand).run, key))

    def _call(self, node: CallNode) -> Compiled:
        function = node.function
        if function == "_?._":
            return self._optional_field(node)
        given = [self.compile(each) for each in node.operands()]
        closures = [each.run for each in given]
        if function == "_&&_":
            return Compiled(_and(*closures))
        if function == "_||_":
            return Compiled(_or(*closures))
        if function == "_?_:_":
            return Compiled(_conditional(*closures))
        if function == "_[_]" and len(node.overloads) == 1:
            indexed = _INDEX.get(node.overloads[0].id)
            if indexed is not None:
                return Compiled(indexed(*closures))
        if function in CONVERSIONS and len(given) == 1 and given[0].constant:
            return _constant(_called(node.overloads, [given[0].value]))
        if function == "@in" and given[1].constant and _is_set(given[1].value):
            return Compiled(_in_set(closures[0], given[1].value))
        if function in ("matches", "find", "findAll") and given[-1].constant:
            self._try_pattern(node, given)
        types = [each.type for each in node.operands()]
        if function in _EQUALITY:
            return Compiled(_equality(closures[0], closures[1], function == "_!=_"))
        if len(node.overloads) == 1 and all(_exact(each) for each in types):
            return Compiled(_direct(node.overloads[0], closures))
        return Compiled(_dispatched(node.overloads, closures))

    def _try_pattern(self, node: CallNode, given: list[Compiled]) -> None:
        """Refuse a constant pattern that does not compile."""
        pattern = given[1].value if given[1].constant else None
        if isinstance(pattern, str):
            node.overloads[0].implementation("", pattern)

    def _optional_field(self, node: CallNode) -> Compiled:
        operand, field = node.arguments
        assert isinstance(field, Constant)
        closure = self.compile(operand).run
        key = _document_key(operand.type, field.value)

        def optional_field(run: Run) -> Maybe:
            container = closure(run)
            run.cost += 1
            return present_at(container, key)

        return Compiled(optional_field)

    def _list(self, node: ListNode) -> Compiled:
        elements = [self.compile(each) for each in node.elements]
        if all(each.constant for each in elements) and not node.optional:
            return _constant([each.value for each in elements])
        closures = [each.run for each in elements]
        optional = node.optional

        def plain(run: Run) -> list[Any]:
            values = [closure(run) for closure in closures]
            run.cost += LIST_PRICE
            return values

        def with_optional(run: Run) -> list[Any]:
            values = []
            for i, closure in enumerate(closures):
                value = closure(run)
                if i not in optional:
                    values.append(value)
                elif value.present:
                    values.append(value.value)
            run.cost += LIST_PRICE
            return values

        return Compiled(with_optional if optional else plain)

    def _map(self, node: MapNode) -> Compiled:
        parts = [
            (self.compile(entry.key), self.compile(entry.value), entry.optional)
            for entry in node.entries
        ]
        if all(key.constant and value.constant and not maybe for key, value, maybe in parts):
            return _constant(_new_map([(key.value, value.value) for key, value, _ in parts]))
        closures = [(key.run, value.run, maybe) for key, value, maybe in parts]

        def made(run: Run) -> dict[Any, Any]:
            pairs = []
            for key, value, maybe in closures:
                name, found = key(run), value(run)
                if not maybe:
                    pairs.append((name, found))
                elif found.present:
                    pairs.append((name, found.value))
            run.cost += MAP_PRICE
            return _new_map(pairs)

        return Compiled(made)

    def _object(self, node: ObjectNode) -> Compiled:
        name = node.name
        parts: list[tuple[str, Closure, bool]] = []
        for entry in node.entries:
            assert isinstance(entry.key, Constant)
            parts.append((entry.key.value, self.compile(entry.value).run, entry.optional))

        def made(run: Run) -> ObjectValue:
            fields = {}
            for key, closure, maybe in parts:
                value = closure(run)
                if not maybe:
                    fields[key] = value
                elif value.present:
                    fields[key] = value.value
            run.cost += OBJECT_PRICE
            return ObjectValue(name, fields)

        return Compiled(made)

    def _fold(self, node: Fold) -> Compiled:
        range, init = self.compile(node.range), self.compile(node.init)
        accumulator, one, two = self.room, self.room + 1, self.room + 2
        self.room += 3
        names = {node.accumulator: accumulator}
        self._scopes.append(names)
        if node.macro == "bind":
            result = self.compile(node.result).run
            self._scopes.pop()
            return Compiled(_bind(init.run, accumulator, result))
        self._scopes.append(
            {node.variable: one, **({node.variable2: two} if node.variable2 else {})}
        )
        test, element, key = self._parts(node)
        self._scopes.pop()
        self._scopes.pop()
        parts = FoldParts(
            range=range.run,
            slot=one,
            slot2=two if node.variable2 else None,
            test=None if test is None else test.run,
            element=None if element is None else element.run,
            key=None if key is None else key.run,
            element_price=0 if element is not None and element.constant else LIST_PRICE,
        )
        return Compiled(compile_fold(node.macro, parts))

    def _parts(self, node: Fold) -> tuple[Compiled | None, Compiled | None, Compiled | None]:
        """Return the test, the element and the key of a loop's step."""
        step = node.step
        assert isinstance(step, CallNode)
        if node.macro in ("all", "exists"):
            return self.compile(step.arguments[1]), None, None
        if node.macro == "exists_one":
            return self.compile(step.arguments[0]), None, None
        test = None
        if step.function == "_?_:_":
            test = self.compile(step.arguments[0])
            step = step.arguments[1]
            assert isinstance(step, CallNode)
        if node.macro == "list":
            listed = step.arguments[1]
            assert isinstance(listed, ListNode)
            return test, self.compile(listed.elements[0]), None
        if len(step.arguments) == 3:
            return test, self.compile(step.arguments[2]), self.compile(step.arguments[1])
        return test, self.compile(step.arguments[1]), None


def _type_name(name: str) -> str:
    found = NAMED_TYPES[name]
    return {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}.get(
        found.kind, {"null": "null_type"}.get(found.kind, found.name)
    )


def _document_key(operand: CelType, field: str) -> str:
    while operand.kind == "optional":
        operand = operand.parameters[0]
    key = operand.keys.get(field) if operand.kind == "object" else None
    return field if key is None else EscapedKey(key, field)


def _exact(type: CelType) -> bool:
    """Tell whether every value of the type is what an implementation expects."""
    return type.kind not in ("dyn", "parameter", "error") and all(map(_exact, type.parameters))


def _variable_field(slot: int, key: str) -> Closure:
    def variable_field(run: Run) -> Any:
        run.cost += 2
        container = run.values[slot]
        if type(container) is dict and key in container:
            return container[key]
        return select(container, key)

    return variable_field


def _field(operand: Closure, key: str) -> Closure:
    def field(run: Run) -> Any:
        container = operand(run)
        run.cost += 1
        if type(container) is dict and key in container:
            return container[key]
        return select(container, key)

    return field


def _presence(operand: Closure, key: str) -> Closure:
    def presence(run: Run) -> bool:
        return has_field(operand(run), key)

    return presence


def _and(left: Closure, right: Closure) -> Closure:
    def both(run: Run) -> bool:
        try:
            first = left(run)
        except CelBudgetError:
            raise
        except CelError as error:
            return _absorbed(right, run, error, False)
        if first is False:
            return False
        if first is not True:
            return _absorbed(right, run, no_overload(), False)
        second = right(run)
        if second is True or second is False:
            return bool(second)
        raise no_overload()

    return both


def _or(left: Closure, right: Closure) -> Closure:
    def either(run: Run) -> bool:
        try:
            first = left(run)
        except CelBudgetError:
            raise
        except CelError as error:
            return _absorbed(right, run, error, True)
        if first is True:
            return True
        if first is not False:
            return _absorbed(right, run, no_overload(), True)
        second = right(run)
        if second is True or second is False:
            return bool(second)
        raise no_overload()

    return either


def _absorbed(right: Closure, run: Run, error: CelError, decisive: bool) -> bool:
    """Return the right operand if it decides alone; else the left operand's error stands."""
    try:
        second = right(run)
    except CelBudgetError:
        raise
    except CelError:
        raise error from None
    if second is decisive:
        return bool(decisive)
    raise error


def _conditional(condition: Closure, then: Closure, otherwise: Closure) -> Closure:
    def conditional(run: Run) -> Any:
        truth = condition(run)
        if truth is True:
            return then(run)
        if truth is False:
            return otherwise(run)
        raise no_overload()

    return conditional


def _indexed(index: Callable[[Any, Any], Any]) -> Callable[[Closure, Closure], Closure]:
    def make(container: Closure, key: Closure) -> Closure:
        def indexed(run: Run) -> Any:
            value, at = container(run), key(run)
            run.cost += 1
            return index(value, at)

        return indexed

    return make


def _index_list(values: Any, at: Any) -> Any:
    if not isinstance(values, list):
        raise no_overload()
    return index_list(values, at)


def _index_map(values: Any, key: Any) -> Any:
    if isinstance(values, dict):
        return index_map(values, key)
    lazy = getattr(values, "cel_field", None)
    if lazy is not None:
        return lazy(key)
    raise no_overload()


_INDEX: Final = {"index_list": _indexed(_index_list), "index_map": _indexed(_index_map)}
_EQUALITY: Final = frozenset({"_==_", "_!=_"})


def _equality(left: Closure, right: Closure, negated: bool) -> Closure:
    def equality(run: Run) -> bool:
        one, other = left(run), right(run)
        if type(one) in _FLAT or type(other) in _FLAT or hasattr(one, "cel_type"):
            run.cost += 1
        else:
            run.cost += (min(size_of(one), size_of(other)) + 9) // 10 + extra_price(one, other)
            if run.cost > run.next_check:
                run.check()
        return equal(one, other) is not negated

    return equality


def _is_set(values: Any) -> bool:
    """Tell whether cel-go makes a set of a constant list: not empty, and of one simple type."""
    return (
        isinstance(values, list)
        and bool(values)
        and type(values[0]) in _FOLDED
        and all(type(each) is type(values[0]) for each in values)
    )


def _in_set(operand: Closure, values: list[Any]) -> Closure:
    members = frozenset(values)
    wants_bool = type(values[0]) is bool

    def in_set(run: Run) -> bool:
        value = operand(run)
        try:
            return value in members and (type(value) is bool) is wants_bool
        except TypeError:
            return False

    return in_set


def _bind(init: Closure, slot: int, result: Closure) -> Closure:
    def bound(run: Run) -> Any:
        run.values[slot] = init(run)
        return result(run)

    return bound


def _new_map(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, value in pairs:
        if not isinstance(key, str | int | bool):
            raise CelError(f"unsupported key type: {type_name(key)}")
        if key in made:
            raise CelError(f"Failed with repeated key: {shown_key(key)}")
        made[key] = value
    return made


def _called(overloads: tuple[FunctionOverload, ...], values: list[Any]) -> Any:
    for overload in overloads:
        if all(map(fits, values, overload.parameters)):
            return overload.implementation(*values)
    raise no_overload()


def _direct(overload: FunctionOverload, closures: list[Closure]) -> Closure:
    """Return a call whose argument types are known."""
    implementation, price = overload.implementation, overload.price
    if price is None and len(closures) == 1:
        return _unary(implementation, closures[0])
    if price is None and len(closures) == 2:
        comparison = _COMPARISONS.get(overload.function)
        if comparison is not None and overload.parameters[0].kind in SCALARS:
            return comparison(*closures)
        return _binary(implementation, *closures)

    def called(run: Run) -> Any:
        values = [closure(run) for closure in closures]
        try:
            run.cost += 1 if price is None else price(*values)
            if run.cost > run.next_check:
                run.check()
            return implementation(*values)
        except _FAULTS:
            raise no_overload() from None

    return called


def _unary(implementation: Callable[..., Any], operand: Closure) -> Closure:
    def unary(run: Run) -> Any:
        value = operand(run)
        run.cost += 1
        try:
            return implementation(value)
        except _FAULTS:
            raise no_overload() from None

    return unary


def _binary(implementation: Callable[..., Any], left: Closure, right: Closure) -> Closure:
    def binary(run: Run) -> Any:
        one, other = left(run), right(run)
        run.cost += 1
        try:
            return implementation(one, other)
        except _FAULTS:
            raise no_overload() from None

    return binary


def _less(left: Closure, right: Closure) -> Closure:
    def less(run: Run) -> bool:
        run.cost += 1
        return bool(left(run) < right(run))

    return less


def _less_equal(left: Closure, right: Closure) -> Closure:
    def less_equal(run: Run) -> bool:
        run.cost += 1
        return bool(left(run) <= right(run))

    return less_equal


def _greater(left: Closure, right: Closure) -> Closure:
    def greater(run: Run) -> bool:
        run.cost += 1
        one = left(run)
        return bool(right(run) < one)

    return greater


def _greater_equal(left: Closure, right: Closure) -> Closure:
    def greater_equal(run: Run) -> bool:
        run.cost += 1
        one = left(run)
        return bool(right(run) <= one)

    return greater_equal


_COMPARISONS: Final = {
    "_<_": _less,
    "_<=_": _less_equal,
    "_>_": _greater,
    "_>=_": _greater_equal,
}


_UNNAMED: Final = frozenset({"matches", "type", "dyn"})
"""Functions that cel-go dispatches by traits, as it does operators."""


def _no_overload_for(function: str, values: tuple[Any, ...]) -> CelError:
    """Return the error of a call whose values fit no overload."""
    if function == "size":
        return CelError("no such overload: size")
    if not function.isidentifier() or function.startswith("_") or function in _UNNAMED:
        return no_overload()
    types = ", ".join(map(type_name, values))
    return CelError(f"no such overload: {function}({types})")


def _dispatched(overloads: tuple[FunctionOverload, ...], closures: list[Closure]) -> Closure:
    """Return a call that finds its overload by the types of the values."""
    by_types: dict[tuple[type, ...], FunctionOverload] = {}
    simple = all(
        each.kind not in ("list", "map", "opaque", "object")
        for overload in overloads
        for each in overload.parameters
    )

    def found(run: Run, types: tuple[type, ...], values: tuple[Any, ...]) -> FunctionOverload:
        for each in overloads:
            if all(map(fits, values, each.guards)):
                if simple and len(by_types) < 64:
                    by_types[types] = each
                return each
        run.cost += 1
        raise _no_overload_for(overloads[0].function, values)

    def called_with_two(run: Run) -> Any:
        one, other = first(run), second(run)
        types = (type(one), type(other))
        overload = by_types.get(types) or found(run, types, (one, other))
        price = overload.price
        try:
            run.cost += 1 if price is None else price(one, other)
            if run.cost > run.next_check:
                run.check()
            return overload.implementation(one, other)
        except _FAULTS:
            raise no_overload() from None

    if len(closures) == 2:
        first, second = closures
        return called_with_two

    def called(run: Run) -> Any:
        values = tuple([closure(run) for closure in closures])
        types = tuple(map(type, values))
        overload = by_types.get(types) or found(run, types, values)
        price = overload.price
        try:
            run.cost += 1 if price is None else price(*values)
            if run.cost > run.next_check:
                run.check()
            return overload.implementation(*values)
        except _FAULTS:
            raise no_overload() from None

    return called
