"""Mutants of a module: the same source with one small fault in the body of a function."""

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGERS: Final = {"log", "_log", "logger"}


@dataclass(frozen=True)
class Mutant:
    """One fault: the node that is replaced, and by which of its replacements."""

    module: ast.Module
    node: ast.expr | ast.stmt
    number: int
    function: int
    """First line of the function around it, as code objects have it."""
    name: str
    """The name of that function, with its classes."""

    def __str__(self) -> str:
        return f"{self.node.lineno}: {self.name}: {self.change}"

    @property
    def change(self) -> str:
        """The source before and after, shortened."""
        after = _replacements(deepcopy(self.node))[self.number]
        return f"{_short(self.node)}  ->  {_short(after)}"

    def tree(self) -> ast.Module:
        """Return the module with the fault."""
        # The copy has the same nodes in the same order, so the position finds the node's twin.
        position = next(i for i, each in enumerate(ast.walk(self.module)) if each is self.node)
        copied = deepcopy(self.module)
        twin = next(each for i, each in enumerate(ast.walk(copied)) if i == position)
        _Swap(twin, _replacements(twin)[self.number]).visit(copied)
        return ast.fix_missing_locations(copied)


def mutants(source: str) -> Iterator[Mutant]:
    """Yield the mutants of a module."""
    module = ast.parse(source)
    for node, function, name in _inside(module, 0, ""):
        for number in range(len(_replacements(deepcopy(node)))):
            yield Mutant(module, node, number, function, name)


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._old:
            return ast.copy_location(self._new, node)
        return self.generic_visit(node)


def _inside(
    node: ast.AST, function: int, name: str
) -> Iterator[tuple[ast.expr | ast.stmt, int, str]]:
    """Yield the nodes in the bodies of functions, each with its function's first line and name."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        name = f"{name}.{node.name}" if name else node.name
    for field, value in ast.iter_fields(node):
        inner = function
        if field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_skipped(node, field, child):
                continue
            if inner and isinstance(child, ast.expr | ast.stmt):
                yield child, inner, name
            yield from _inside(child, inner, name)


def _is_skipped(parent: ast.AST, field: str, child: ast.AST) -> bool:
    """Return whether no test can tell a change: types, decorators, documentation, log lines."""
    if field in ("annotation", "returns", "decorator_list", "type_params"):
        return True
    if isinstance(child, ast.FunctionDef) and child.name == "__repr__":
        return True
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Pow):
        return True
    # The bodies of functions are swapped, their defaults are not.
    if isinstance(parent, ast.arguments) or isinstance(child, ast.Assert):
        return True
    # An assertion too: `zip` then refuses sequences of different lengths.
    if isinstance(parent, ast.keyword) and parent.arg == "strict":
        return True
    if not isinstance(child, ast.Expr):
        return isinstance(parent, ast.JoinedStr | ast.FormattedValue) and isinstance(
            child, ast.Constant
        )
    return isinstance(child.value, ast.Constant) or _is_log(child.value)


def _is_log(node: ast.expr) -> bool:
    target = node.func if isinstance(node, ast.Call) else node
    root = target.value if isinstance(target, ast.Attribute) else target
    return isinstance(root, ast.Name) and root.id in _LOGGERS


def _replacements(node: ast.AST) -> list[ast.AST]:
    """Return what a node can be replaced by."""
    match node:
        case ast.Compare(ops=[op, *others]):
            swapped = _COMPARISONS[type(op)]()
            return [ast.Compare(node.left, [swapped, *others], node.comparators)]
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return [ast.BoolOp(other, node.values)]
        case ast.UnaryOp(op=ast.Not()):
            return [node.operand]
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            return [node.operand]
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            return [ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)]
        case ast.AugAssign() if type(node.op) in _ARITHMETIC:
            turned = ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)
            return [turned, ast.Pass()]
        case ast.Constant():
            return _other_constants(node.value)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            return [ast.Call(ast.Name(_CALLS[name], ast.Load()), node.args, node.keywords)]
        case ast.If() | ast.While() if isinstance(node.test, ast.Name | ast.Call):
            return [type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)]
        case ast.IfExp() if isinstance(node.test, ast.Name | ast.Call):
            return [ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)]
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return [ast.Return(ast.Constant(None))]
        case ast.Expr(value=ast.Call()) | ast.Expr(value=ast.Await()) | ast.Delete() | ast.Raise():
            return [ast.Pass()]
        case ast.Break():
            return [ast.Continue()]
        case ast.Continue():
            return [ast.Break()]
    return []


def _other_constants(value: object) -> list[ast.AST]:
    match value:
        case bool():
            return [ast.Constant(not value)]
        case int() | float():
            return [ast.Constant(value + 1)]
        case str():
            return [ast.Constant(f"{value}!")]
        case bytes():
            return [ast.Constant(value + b"!")]
    return []


def _short(node: ast.AST) -> str:
    line = " ".join(ast.unparse(node).split())
    return line if len(line) <= 90 else f"{line[:87]}..."
