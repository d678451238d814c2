"""The syntax tree of an expression: eight kinds of nodes, as in the CEL specification."""

from typing import Any, ClassVar

from kedge.machinery.cel.types import CelType


class Node:
    """An expression; `at` is the offset in the source that errors point to."""

    __slots__ = ("at", "type")

    type: CelType
    """Set by the checker."""

    def __init__(self, at: int) -> None:
        self.at = at


class Constant(Node):
    """A literal of a scalar type."""

    __slots__ = ("value",)

    def __init__(self, at: int, value: Any) -> None:
        super().__init__(at)
        self.value = value


class Name(Node):
    """A variable, or a type; the checker joins qualified names."""

    __slots__ = ("name",)

    def __init__(self, at: int, name: str) -> None:
        super().__init__(at)
        self.name = name


class Member(Node):
    """`operand.field`, or `has(operand.field)`."""

    __slots__ = ("field", "operand", "presence", "variable")

    def __init__(self, at: int, operand: Node, field: str, *, presence: bool = False) -> None:
        super().__init__(at)
        self.operand = operand
        self.field = field
        self.presence = presence
        self.variable = ""
        """The qualified name, if the whole of it names a variable."""


class CallNode(Node):
    """A call of a function, of a method if there is a target, or of an operator."""

    __slots__ = ("arguments", "function", "overloads", "target")

    def __init__(
        self, at: int, function: str, arguments: list[Node], target: Node | None = None
    ) -> None:
        super().__init__(at)
        self.function = function
        self.target = target
        self.arguments = arguments
        self.overloads: tuple[Any, ...] = ()
        """Set by the checker: the overloads that the arguments may match."""

    def operands(self) -> list[Node]:
        """Return target and arguments."""
        return [*([self.target] if self.target is not None else []), *self.arguments]


class ListNode(Node):
    """A list literal; `optional` holds the indices of elements with `?`."""

    __slots__ = ("elements", "optional")

    def __init__(
        self, at: int, elements: list[Node], optional: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(at)
        self.elements = elements
        self.optional = optional


class MapEntry:
    """An entry of a map literal, or a field of an object literal with a constant key."""

    __slots__ = ("at", "key", "optional", "value")

    def __init__(self, at: int, key: Node, value: Node, *, optional: bool = False) -> None:
        self.at = at
        self.key = key
        self.value = value
        self.optional = optional


class MapNode(Node):
    """A map literal."""

    __slots__ = ("entries",)

    def __init__(self, at: int, entries: list[MapEntry]) -> None:
        super().__init__(at)
        self.entries = entries


class ObjectNode(Node):
    """An object literal such as `Object.spec{replicas: 1}`."""

    __slots__ = ("entries", "name")

    def __init__(self, at: int, name: str, entries: list[MapEntry]) -> None:
        super().__init__(at)
        self.name = name
        self.entries = entries


class Fold(Node):
    """A loop over a list or map, written as a macro such as `all`.

    The accumulator starts with `init`; while `condition` holds, `step` replaces it for each
    element; `result` is the value.
    """

    __slots__ = (
        "accumulator",
        "condition",
        "init",
        "macro",
        "range",
        "result",
        "step",
        "variable",
        "variable2",
        "written",
    )

    ACCUMULATOR: ClassVar[str] = "@result"

    def __init__(
        self,
        at: int,
        *,
        macro: str,
        range: Node,
        variable: str,
        variable2: str = "",
        accumulator: str = ACCUMULATOR,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        super().__init__(at)
        self.macro = macro
        """The macro that the loop comes from; `bind` for a loop that only binds a variable."""
        self.range = range
        self.variable = variable
        self.variable2 = variable2
        self.accumulator = accumulator
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result
        self.written: CallNode | None = None
        """The call as the author wrote it."""


def children(node: Node) -> list[Node]:
    """Return the nodes directly below a node, in the order of the source."""
    if isinstance(node, Member):
        return [node.operand]
    if isinstance(node, CallNode):
        return node.operands()
    if isinstance(node, ListNode):
        return node.elements
    if isinstance(node, MapNode):
        return [part for entry in node.entries for part in (entry.key, entry.value)]
    if isinstance(node, ObjectNode):
        return [entry.value for entry in node.entries]
    if isinstance(node, Fold):
        return [node.range, node.init, node.condition, node.step, node.result]
    return []
