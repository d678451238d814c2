"""The parser: from tokens to a syntax tree, bounded in size and depth."""

from typing import Final, NoReturn

from kedge.machinery.cel.errors import CelError, CelIssues, CelSource
from kedge.machinery.cel.macros import MacroError, expanded
from kedge.machinery.cel.syntax import (
    CallNode,
    Constant,
    ListNode,
    MapEntry,
    MapNode,
    Member,
    Name,
    Node,
    ObjectNode,
)
from kedge.machinery.cel.tokens import RESERVED, CelToken, tokenize
from kedge.machinery.cel.values import INT_MAX, INT_MIN

MAX_CODE_POINTS: Final = 100_000
MAX_DEPTH: Final = 250

_PRIMARY: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)
_STARTS: Final = frozenset(
    {"[", "{", "(", ".", "-", "!", "true", "false", "null", "NUMBER", "STRING", "WORD"}
)
_BINARY: Final = {
    "||": (1, "_||_"),
    "&&": (2, "_&&_"),
    "<": (3, "_<_"),
    "<=": (3, "_<=_"),
    ">": (3, "_>_"),
    ">=": (3, "_>=_"),
    "==": (3, "_==_"),
    "!=": (3, "_!=_"),
    "in": (3, "@in"),
    "+": (4, "_+_"),
    "-": (4, "_-_"),
    "*": (5, "_*_"),
    "/": (5, "_/_"),
    "%": (5, "_%_"),
}


class _StopError(Exception):
    """The rest of the expression cannot be parsed."""


def parse(text: str, issues: CelIssues, macros: frozenset[str]) -> Node | None:
    """Return the tree of an expression; None if there are issues."""
    if len(text) > MAX_CODE_POINTS:
        size = f"size: {len(text)}, limit {MAX_CODE_POINTS}"
        issues.add(-1, f"expression code point size exceeds limit: {size}")
        return None
    parser = _Parser(tokenize(text, issues), issues, macros)
    try:
        node = parser.whole()
    except _StopError:
        return None
    except RecursionError:
        issues.add(-1, f"expression recursion limit exceeded: {MAX_DEPTH}")
        return None
    return None if issues else node


def parsed(text: str, macros: frozenset[str]) -> Node:
    """Return the tree of an expression, or raise a CelError."""
    issues = CelIssues(CelSource(text))
    node = parse(text, issues, macros)
    if node is None:
        raise CelError(str(issues))
    return node


class _Parser:
    def __init__(self, tokens: list[CelToken], issues: CelIssues, macros: frozenset[str]) -> None:
        self._tokens = tokens
        self._issues = issues
        self._macros = macros
        self._next = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._expression()
        token = self._token()
        if token.kind != "END":
            last = self._tokens[self._next + 1].kind == "END"
            what = "extraneous" if last else "mismatched"
            self._stop(token, f"{what} input '{token.text}' expecting <EOF>")
        return node

    def _token(self) -> CelToken:
        return self._tokens[self._next]

    def _take(self, kind: str) -> CelToken | None:
        token = self._tokens[self._next]
        if token.kind != kind:
            return None
        self._next += 1
        return token

    def _need(self, kind: str) -> CelToken:
        token = self._take(kind)
        if token is None:
            found = self._token()
            shown = "IDENTIFIER" if kind == "WORD" else f"'{kind}'"
            self._stop(found, f"mismatched input '{found.text}' expecting {shown}")
        return token

    def _stop(self, token: CelToken, why: str) -> NoReturn:
        self._issues.add(token.at, f"Syntax error: {why}")
        raise _StopError

    def _too_deep(self, why: str) -> NoReturn:
        self._issues.add(-1, why)
        raise _StopError

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._too_deep(f"expression recursion limit exceeded: {MAX_DEPTH}")
        condition = self._binary(1)
        mark = self._take("?")
        if mark is not None:
            then = self._binary(1)
            self._need(":")
            condition = CallNode(mark.at, "_?_:_", [condition, then, self._expression()])
        self._depth -= 1
        return condition

    def _binary(self, lowest: int) -> Node:
        left = self._unary()
        length = 0
        while (found := _BINARY.get(self._token().kind)) is not None and found[0] >= lowest:
            strength, function = found
            if strength <= 2:
                left = self._logical(left, strength, function)
                continue
            length += 1
            if length > MAX_DEPTH:
                self._too_deep(f"expression recursion limit exceeded: {MAX_DEPTH}")
            token = self._token()
            self._next += 1
            left = CallNode(token.at, function, [left, self._binary(strength + 1)])
        return left

    def _logical(self, first: Node, strength: int, function: str) -> Node:
        """Return a balanced tree of a chain of `&&` or `||`, so that long chains are not deep."""
        mark = "||" if strength == 1 else "&&"
        terms, marks = [first], []
        while (token := self._take(mark)) is not None:
            marks.append(token.at)
            terms.append(self._binary(strength + 1))
        return _balanced(function, terms, marks, 0, len(marks) - 1)

    def _unary(self) -> Node:
        token = self._token()
        if token.kind == "!":
            return self._repeated("!", "!_")
        if token.kind == "-":
            if self._tokens[self._next + 1].kind == "NUMBER":
                return self._member(self._negative())
            return self._repeated("-", "-_")
        return self._member(self._primary())

    def _repeated(self, mark: str, function: str) -> Node:
        """Return the operand of a row of `!` or `-`: an even number of them cancels out."""
        first = self._token()
        count = 0
        while self._take(mark) is not None:
            count += 1
        operand = self._member(self._primary())
        return operand if count % 2 == 0 else CallNode(first.at, function, [operand])

    def _negative(self) -> Node:
        at = self._token().at
        self._next += 1
        token = self._token()
        self._next += 1
        value = token.value
        if type(value) is int and -value < INT_MIN:
            self._issues.add(at, "invalid int literal")
        if type(value) not in (int, float):
            return CallNode(at, "-_", [Constant(token.at, value)])
        return Constant(at, -value)

    def _member(self, node: Node) -> Node:
        length = 0
        while True:
            length += 1
            if length > MAX_DEPTH:
                self._too_deep("max recursion depth exceeded")
            dot = self._take(".")
            if dot is not None:
                node = self._selected(node, dot)
                continue
            bracket = self._take("[")
            if bracket is None:
                return node
            optional = self._take("?") is not None
            index = self._expression()
            self._need("]")
            node = CallNode(bracket.at, "_[?_]" if optional else "_[_]", [node, index])

    def _selected(self, node: Node, dot: CelToken) -> Node:
        optional = self._take("?") is not None
        field = self._need("WORD")
        opening = None if optional else self._take("(")
        if opening is not None:
            return self._call(field.text, opening, node)
        if optional:
            return CallNode(dot.at, "_?._", [node, Constant(field.at, field.text)])
        return Member(dot.at, node, field.text)

    def _primary(self) -> Node:
        token = self._token()
        if token.kind not in _STARTS:
            following = self._tokens[min(self._next + 1, len(self._tokens) - 1)].kind
            what = "extraneous" if following in _STARTS and token.kind != "END" else "mismatched"
            self._stop(token, f"{what} input '{token.text}' expecting {_PRIMARY}")
        self._next += 1
        if token.kind == "NUMBER":
            if type(token.value) is int and token.value > INT_MAX:
                self._issues.add(token.at, "invalid int literal")
            return Constant(token.at, token.value)
        if token.kind == "STRING":
            return Constant(token.at, token.value)
        if token.kind in ("true", "false", "null"):
            return Constant(token.at, {"true": True, "false": False, "null": None}[token.kind])
        if token.kind == "(":
            node = self._expression()
            self._need(")")
            return node
        if token.kind == "[":
            return self._list(token)
        if token.kind == "{":
            return self._map(token)
        if token.kind in ("-", "!"):
            self._next -= 1
            return self._unary()
        return self._name(token)

    def _name(self, token: CelToken) -> Node:
        first, at = token, token.at
        if token.kind == ".":
            first = self._need("WORD")
        opening = self._take("(")
        if opening is not None:
            return self._call(first.text, opening, None)
        fields = self._object_fields(first.text, at)
        if fields is not None:
            return fields
        if first.text in RESERVED:
            self._issues.add(first.at, f"reserved identifier: {first.text}")
        return Name(at, first.text)

    def _object_fields(self, name: str, at: int) -> Node | None:
        """Return an object literal if the qualified name is followed by a brace."""
        begin = ahead = self._next
        while self._tokens[ahead].kind == "." and self._tokens[ahead + 1].kind == "WORD":
            name += f".{self._tokens[ahead + 1].text}"
            ahead += 2
        if self._tokens[ahead].kind != "{":
            self._next = begin
            return None
        brace = self._tokens[ahead]
        self._next = ahead + 1
        entries: list[MapEntry] = []
        while self._take("}") is None:
            optional = self._take("?") is not None
            field = self._need("WORD")
            colon = self._need(":")
            key = Constant(field.at, field.text)
            entries.append(MapEntry(colon.at, key, self._expression(), optional=optional))
            if self._take(",") is None:
                self._need("}")
                break
        return ObjectNode(brace.at, name, entries)

    def _list(self, bracket: CelToken) -> Node:
        elements: list[Node] = []
        optional: set[int] = set()
        while self._take("]") is None:
            if self._take("?") is not None:
                optional.add(len(elements))
            elements.append(self._expression())
            if self._take(",") is None:
                self._need("]")
                break
        return ListNode(bracket.at, elements, frozenset(optional))

    def _map(self, brace: CelToken) -> Node:
        entries: list[MapEntry] = []
        while self._take("}") is None:
            optional = self._take("?") is not None
            key = self._expression()
            colon = self._need(":")
            entries.append(MapEntry(colon.at, key, self._expression(), optional=optional))
            if self._take(",") is None:
                self._need("}")
                break
        return MapNode(brace.at, entries)

    def _call(self, function: str, opening: CelToken, target: Node | None) -> Node:
        arguments: list[Node] = []
        if self._take(")") is None:
            arguments.append(self._expression())
            while self._take(",") is not None:
                arguments.append(self._expression())
            self._need(")")
        call = CallNode(opening.at, function, arguments, target)
        try:
            return expanded(call, self._macros)
        except MacroError as error:
            self._issues.add(error.at, str(error))
            return call


def _balanced(function: str, terms: list[Node], marks: list[int], low: int, high: int) -> Node:
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, marks, low, middle - 1)
    if middle == high:
        right = terms[middle + 1]
    else:
        right = _balanced(function, terms, marks, middle + 1, high)
    return CallNode(marks[middle], function, [left, right])
