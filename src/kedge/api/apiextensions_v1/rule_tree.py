"""The CEL rules of a schema, compiled, in a tree that mirrors the schema."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kedge.api.apiextensions_v1.rule_paths import field_path
from kedge.machinery.cel import CelError, CelProgram, uses
from kedge.machinery.cel.schema_types import DeclaredType, converter, declared_type

Schema = Mapping[str, Any]

_RULES: Final = "x-kubernetes-validations"


class CompiledRule:
    """One rule of a schema."""

    __slots__ = ("about", "detail", "error", "is_optional", "message", "path", "program", "reason")

    def __init__(self, rule: Mapping[str, Any], declared: DeclaredType, schema: Schema) -> None:
        message, expression = rule.get("message", ""), rule["rule"]
        self.about: str = (message or expression).strip()
        """Names the rule in errors."""
        self.detail: str = message.strip() if message else f"failed rule: {self.about}"
        self.reason: str | None = rule.get("reason")
        self.is_optional = bool(rule.get("optionalOldSelf"))
        """Whether `oldSelf` is an optional, so that the rule also runs without an old value."""
        self.error = ""
        self.path = ""
        self.message: CelProgram | None = None
        self.program: CelProgram | None = None
        environment = uses.crd_rule(declared.type, optional_old=self.is_optional)
        try:
            self.program = CelProgram(expression, environment)
            if rule.get("messageExpression"):
                self.message = CelProgram(rule["messageExpression"], environment)
            self.path = field_path(rule.get("fieldPath", ""), schema)
        except (CelError, ValueError) as error:
            # Definitions are checked when they are written; only another server lets one pass.
            self.error = str(error)

    @property
    def uses_old(self) -> bool:
        return self.program is not None and "oldSelf" in self.program.uses


class RuleNode:
    """The rules of one node of a schema, and the nodes below it that have rules."""

    __slots__ = ("convert", "error", "fields", "items", "rules", "schema", "type", "values")

    def __init__(self, schema: Schema, *, is_root: bool) -> None:
        self.schema = schema
        self.type: str = schema.get("type") or ""
        self.rules: list[CompiledRule] = []
        self.error = ""
        self.convert: Callable[[Any], Any] | None = None
        """Makes values of documents; None if documents are the values."""
        if schema.get(_RULES):
            self._compile(schema, is_root=is_root)
        properties = schema.get("properties") or {}
        found = {name: _node(inner) for name, inner in properties.items()}
        self.fields = {name: node for name, node in found.items() if node is not None}
        self.items = _node(schema.get("items"))
        self.values = _node(schema.get("additionalProperties"))

    def _compile(self, schema: Schema, *, is_root: bool) -> None:
        declared = declared_type(schema, root=is_root)
        if declared is None:
            self.error = "unable to convert structural schema to CEL declarations"
            return
        self.convert = converter(schema)
        self.rules = [CompiledRule(rule, declared, schema) for rule in schema[_RULES]]

    @property
    def is_empty(self) -> bool:
        below = self.fields or self.items or self.values
        return not (below or self.rules or self.error)

    @property
    def is_broken(self) -> bool:
        """Whether one of the rules does not compile."""
        return (
            bool(self.error)
            or any(rule.error for rule in self.rules)
            or any(node.is_broken for node in self._below())
        )

    def _below(self) -> "list[RuleNode]":
        below = [*self.fields.values(), self.items, self.values]
        return [node for node in below if node is not None]

    def size(self) -> int:
        """Return the characters of all expressions, a measure of the memory that they take."""
        own = sum(
            len(each.expression)
            for rule in self.rules
            for each in (rule.program, rule.message)
            if each is not None
        )
        return own + sum(node.size() for node in self._below())


def _node(schema: Any) -> RuleNode | None:
    if not isinstance(schema, Mapping):
        return None
    node = RuleNode(schema, is_root=bool(schema.get("x-kubernetes-embedded-resource")))
    return None if node.is_empty else node


def rule_tree(schema: Schema, *, is_root: bool = True) -> RuleNode | None:
    """Return the compiled rules of a schema; None if it has none."""
    node = RuleNode(schema, is_root=is_root)
    return None if node.is_empty else node
