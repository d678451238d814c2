"""Macros: calls that the parser replaces by loops, presence tests and bindings."""

from collections.abc import Callable
from typing import Final

from kedge.machinery.cel.syntax import (
    CallNode,
    Constant,
    Fold,
    ListNode,
    MapNode,
    Member,
    Name,
    Node,
    children,
)

STANDARD: Final = frozenset(
    {
        "has", "all", "exists", "exists_one", "existsOne", "map", "filter", "sortBy",
        "transformList", "transformMap", "transformMapEntry", "optMap", "optFlatMap",
    }
)  # fmt: skip
WITH_BINDINGS: Final = STANDARD | {"bind"}

_ACCUMULATOR: Final = Fold.ACCUMULATOR
_MOST_COPIED: Final = 500
"""Nodes that a macro may write twice: a chain of such macros doubles with each of them."""


class MacroError(Exception):
    """The arguments of a macro do not have the form that it needs."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


def expanded(call: CallNode, macros: frozenset[str]) -> Node:
    """Return what a call stands for if it is a macro, else the call."""
    if call.function not in macros:
        return call
    if call.function == "has":
        return _has(call) if call.target is None and len(call.arguments) == 1 else call
    expand = _MACROS.get((call.function, len(call.arguments)))
    if call.target is None or expand is None:
        return call
    node = expand(call, call.target)
    if isinstance(node, Fold):
        node.written = call
    return node


def _has(call: CallNode) -> Node:
    argument = call.arguments[0]
    if isinstance(argument, Member) and not argument.presence:
        return Member(argument.at, argument.operand, argument.field, presence=True)
    raise MacroError(argument.at, "invalid argument to has() macro")


def _variable(node: Node, why: str = "argument must be a simple name") -> str:
    if not isinstance(node, Name):
        raise MacroError(node.at, why)
    if node.name in (_ACCUMULATOR, "__result__"):
        raise MacroError(node.at, "iteration variable overwrites accumulator variable")
    return node.name


def _variables(call: CallNode) -> tuple[str, str]:
    first, second = _variable(call.arguments[0]), _variable(call.arguments[1])
    if first == second:
        raise MacroError(call.arguments[1].at, f"duplicate variable name: {first}")
    return first, second


def _accumulator(at: int) -> Node:
    return Name(at, _ACCUMULATOR)


def _operator(at: int, function: str, *arguments: Node) -> CallNode:
    return CallNode(at, function, list(arguments))


def _all(call: CallNode, target: Node, one: str, two: str, test: Node) -> Node:
    at = call.at
    return Fold(
        at,
        macro="all",
        range=target,
        variable=one,
        variable2=two,
        init=Constant(at, True),
        condition=_operator(at, "@not_strictly_false", _accumulator(at)),
        step=_operator(at, "_&&_", _accumulator(at), test),
        result=_accumulator(at),
    )


def _exists(call: CallNode, target: Node, one: str, two: str, test: Node) -> Node:
    at = call.at
    return Fold(
        at,
        macro="exists",
        range=target,
        variable=one,
        variable2=two,
        init=Constant(at, False),
        condition=_operator(at, "@not_strictly_false", _operator(at, "!_", _accumulator(at))),
        step=_operator(at, "_||_", _accumulator(at), test),
        result=_accumulator(at),
    )


def _exists_one(call: CallNode, target: Node, one: str, two: str, test: Node) -> Node:
    at = call.at
    more = _operator(at, "_+_", _accumulator(at), Constant(at, 1))
    return Fold(
        at,
        macro="exists_one",
        range=target,
        variable=one,
        variable2=two,
        init=Constant(at, 0),
        condition=Constant(at, True),
        step=_operator(at, "_?_:_", test, more, _accumulator(at)),
        result=_operator(at, "_==_", _accumulator(at), Constant(at, 1)),
    )


def _collected(
    call: CallNode, target: Node, names: tuple[str, str], test: Node | None, element: Node
) -> Node:
    at = call.at
    step: Node = _operator(at, "_+_", _accumulator(at), ListNode(at, [element]))
    if test is not None:
        step = _operator(at, "_?_:_", test, step, _accumulator(at))
    return Fold(
        at,
        macro="list",
        range=target,
        variable=names[0],
        variable2=names[1],
        init=ListNode(at, []),
        condition=Constant(at, True),
        step=step,
        result=_accumulator(at),
    )


def _inserted(
    call: CallNode, target: Node, names: tuple[str, str], test: Node | None, insert: list[Node]
) -> Node:
    at = call.at
    step: Node = _operator(at, "cel.@mapInsert", _accumulator(at), *insert)
    if test is not None:
        step = _operator(at, "_?_:_", test, step, _accumulator(at))
    return Fold(
        at,
        macro="map",
        range=target,
        variable=names[0],
        variable2=names[1],
        init=MapNode(at, []),
        condition=Constant(at, True),
        step=step,
        result=_accumulator(at),
    )


Quantifier = Callable[[CallNode, Node, str, str, Node], Node]
Expansion = Callable[[CallNode, Node], Node]


def _one_variable(quantifier: Quantifier) -> Expansion:
    def expand(call: CallNode, target: Node) -> Node:
        return quantifier(call, target, _variable(call.arguments[0]), "", call.arguments[1])

    return expand


def _two_variables(quantifier: Quantifier) -> Expansion:
    def expand(call: CallNode, target: Node) -> Node:
        return quantifier(call, target, *_variables(call), call.arguments[2])

    return expand


def _map(call: CallNode, target: Node) -> Node:
    name = _variable(call.arguments[0], "argument is not an identifier")
    test = call.arguments[1] if len(call.arguments) == 3 else None
    return _collected(call, target, (name, ""), test, call.arguments[-1])


def _filter(call: CallNode, target: Node) -> Node:
    name = _variable(call.arguments[0], "argument is not an identifier")
    element = Name(call.arguments[0].at, name)
    return _collected(call, target, (name, ""), call.arguments[1], element)


def _transform_list(call: CallNode, target: Node) -> Node:
    test = call.arguments[2] if len(call.arguments) == 4 else None
    return _collected(call, target, _variables(call), test, call.arguments[-1])


def _transform_map(call: CallNode, target: Node) -> Node:
    names = _variables(call)
    test = call.arguments[2] if len(call.arguments) == 4 else None
    return _inserted(call, target, names, test, [Name(call.at, names[0]), call.arguments[-1]])


def _transform_entry(call: CallNode, target: Node) -> Node:
    test = call.arguments[2] if len(call.arguments) == 4 else None
    return _inserted(call, target, _variables(call), test, [call.arguments[-1]])


def _bound(at: int, name: str, value: Node, result: Node) -> Fold:
    return Fold(
        at,
        macro="bind",
        range=ListNode(at, []),
        variable="#unused",
        accumulator=name,
        init=value,
        condition=Constant(at, False),
        step=Name(at, name),
        result=result,
    )


def _bind(call: CallNode, target: Node) -> Node:
    if not isinstance(target, Name) or target.name != "cel":
        return call
    name = _variable(call.arguments[0], "cel.bind() variable names must be simple identifiers")
    return _bound(call.at, name, call.arguments[1], call.arguments[2])


_SORTED: Final = "@__sortBy_input__"


def _sort_by(call: CallNode, target: Node) -> Node:
    if isinstance(target, Constant | MapNode):
        why = "sortBy can only be applied to a list, identifier, comprehension, call or select"
        raise MacroError(target.at, f"{why} expression")
    keys = _map(call, Name(call.at, _SORTED))
    ordered = CallNode(call.at, "@sortByAssociatedKeys", [keys], Name(call.at, _SORTED))
    return _bound(call.at, _SORTED, target, ordered)


def _check_copied(target: Node) -> None:
    waiting, count = [target], 0
    while waiting:
        each = waiting.pop()
        count += 1
        if count > _MOST_COPIED:
            raise MacroError(target.at, "expression is too complex")
        waiting.extend(children(each))


def _opt_map(call: CallNode, target: Node) -> Node:
    _check_copied(target)
    at, present = call.at, CallNode(call.at, "hasValue", [], target)
    name = _variable(call.arguments[0], "optMap() variable name must be a simple identifier")
    value = _bound(at, name, CallNode(at, "value", [], target), call.arguments[1])
    return _operator(
        at, "_?_:_", present, _operator(at, "optional.of", value), _operator(at, "optional.none")
    )


def _opt_flat_map(call: CallNode, target: Node) -> Node:
    _check_copied(target)
    at, present = call.at, CallNode(call.at, "hasValue", [], target)
    name = _variable(call.arguments[0], "optFlatMap() variable name must be a simple identifier")
    value = _bound(at, name, CallNode(at, "value", [], target), call.arguments[1])
    return _operator(at, "_?_:_", present, value, _operator(at, "optional.none"))


_MACROS: Final[dict[tuple[str, int], Expansion]] = {
    ("all", 2): _one_variable(_all),
    ("exists", 2): _one_variable(_exists),
    ("exists_one", 2): _one_variable(_exists_one),
    ("existsOne", 2): _one_variable(_exists_one),
    ("all", 3): _two_variables(_all),
    ("exists", 3): _two_variables(_exists),
    ("exists_one", 3): _two_variables(_exists_one),
    ("existsOne", 3): _two_variables(_exists_one),
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("sortBy", 2): _sort_by,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_entry,
    ("transformMapEntry", 4): _transform_entry,
    ("optMap", 2): _opt_map,
    ("optFlatMap", 2): _opt_flat_map,
    ("bind", 3): _bind,
}
