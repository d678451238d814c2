"""Evaluates the CEL rules of a schema for an object, with the errors of Kubernetes."""

from contextlib import suppress
from typing import Any, Final, NamedTuple

from kedge.api.apiextensions_v1.correlation import Correlation, MapListItems
from kedge.api.apiextensions_v1.rule_tree import CompiledRule, RuleNode
from kedge.machinery import patience
from kedge.machinery.cel import PER_CALL_LIMIT, CelBudgetError, CelError, CelPatienceError
from kedge.machinery.cel.misfits import Misfit, guarded, has_fraction
from kedge.machinery.cel.program import CelProgram
from kedge.machinery.cel.values import NOTHING, Maybe
from kedge.machinery.errors import ErrorScope, FieldError, quoted, shown

OBJECT_LIMIT: Final = 10_000_000
"""The cost limit of all rules of one object."""
MAX_MESSAGE_BYTES: Final = 5120
_NO_PATH: Final = "<nil>"
_OUT_OF_BUDGET: Final = "running out of cost budget, no further validation rules will be run"
_NODE_COST: Final = 5
"""The work of a visit to a value. It counts for the event loop only, not for the limits."""


class Ratchet(NamedTuple):
    """Decides whether an error counts: unchanged values may stay invalid."""

    current: Correlation | None = None
    nearest: Correlation | None = None
    """The nearest value above that has a counterpart in the old object."""

    def is_unchanged(self) -> bool:
        decides = self.current or self.nearest
        return decides is not None and decides.is_unchanged()

    def key(self, name: str) -> "Ratchet":
        if self.current is None:
            return self
        if self.nearest is None and name in ("apiVersion", "kind"):
            return Ratchet()
        return Ratchet(self.current.key(name), self.current)

    def element(self, at: int) -> "Ratchet":
        return self if self.current is None else Ratchet(self.current.index(at), self.current)


class _RulesStopped(Exception):
    """A limit is reached: no further rules run."""


def rule_errors(
    tree: RuleNode, value: Any, old: Any, path: str = "", ratchet: Ratchet | None = None
) -> list[FieldError]:
    """Return the errors of all rules; those of unchanged values have the scope RATCHETED."""
    evaluation = _Evaluation(is_guarded=has_fraction(value) or has_fraction(old))
    with suppress(_RulesStopped):
        evaluation.visit(tree, value, old, path, ratchet or Ratchet())
    return evaluation.errors


class _Evaluation:
    """The rules of one object: their errors, and the cost that is left."""

    def __init__(self, *, is_guarded: bool) -> None:
        self.errors: list[FieldError] = []
        self._budget = OBJECT_LIMIT
        self._is_guarded = is_guarded
        """Whether numbers may be of another type than the schema declares."""

    def visit(self, node: RuleNode, value: Any, old: Any, path: str, ratchet: Ratchet) -> None:
        if value is None:
            return
        patience.spend(_NODE_COST)
        if node.rules or node.error:
            self._apply_rules(node, value, old, path, ratchet)
        if isinstance(value, list):
            self._visit_list(node, value, old, path, ratchet)
        elif isinstance(value, dict):
            self._visit_object(node, value, old, path, ratchet)

    def _visit_list(
        self, node: RuleNode, value: list[Any], old: Any, path: str, ratchet: Ratchet
    ) -> None:
        if node.items is None:
            return
        counterparts = MapListItems(node.schema, old)
        for i, each in enumerate(value):
            before = counterparts.like(each)
            self.visit(node.items, each, before, f"{path}[{i}]", ratchet.element(i))

    def _visit_object(
        self, node: RuleNode, value: dict[str, Any], old: Any, path: str, ratchet: Ratchet
    ) -> None:
        olds = old if isinstance(old, dict) else {}
        for name, inner in value.items():
            if node.values is not None:
                at = f"{path}[{name}]"
                self.visit(node.values, inner, olds.get(name), at, ratchet.key(name))
            if (field := node.fields.get(name)) is not None:
                at = f"{path}.{name}" if path else name
                self.visit(field, inner, olds.get(name), at, ratchet.key(name))

    def _apply_rules(
        self, node: RuleNode, value: Any, old: Any, path: str, ratchet: Ratchet
    ) -> None:
        at = path or _NO_PATH
        if node.error:
            why = f"rule compiler initialization error: {node.error}"
            self.errors.append(FieldError.invalid(at, node.type, why))
            return
        if self._budget <= 0:
            why = f"validation failed due to {_OUT_OF_BUDGET}"
            self._stop(FieldError.invalid(at, node.type, why))
        values = (_GuardedValues if self._is_guarded else _Values)(node, value, old)
        for rule in node.rules:
            if rule.program is None:
                why = f"rule compile error: {rule.error}"
                self.errors.append(FieldError.invalid(at, node.type, why))
            elif old is not None or rule.is_optional or not rule.uses_old:
                self._apply(rule, rule.program, values, path, ratchet)

    def _apply(
        self,
        rule: CompiledRule,
        program: CelProgram,
        values: "_Values",
        path: str,
        ratchet: Ratchet,
    ) -> None:
        at, kind = path or _NO_PATH, values.node.type
        result, cost, failure = _run(program, values, is_optional=rule.is_optional)
        if cost > self._budget:
            why = f"validation failed due to {_OUT_OF_BUDGET}"
            self._stop(FieldError.invalid(at, kind, why))
        self._budget -= cost
        if isinstance(failure, CelBudgetError):
            said = "no further validation rules will be run due to call cost exceeds limit"
            why = f"'{failure}': {said} for rule: {rule.about}"
            self._stop(FieldError.invalid(at, kind, why))
        if failure is not None:
            self.errors.append(FieldError.invalid(at, kind, _failed(failure, rule)))
        elif result is not True:
            self._refuse(rule, values, path, ratchet)

    def _refuse(self, rule: CompiledRule, values: "_Values", path: str, ratchet: Ratchet) -> None:
        at = f"{path}.{rule.path}" if path and rule.path else path or rule.path or _NO_PATH
        tolerated = not rule.uses_old and ratchet.is_unchanged()

        def scoped(error: FieldError) -> FieldError:
            return error.only(ErrorScope.RATCHETED) if tolerated else error

        detail = rule.detail
        if rule.message is not None:
            try:
                detail = self._message(rule.message, values) or detail
            except CelBudgetError as error:
                self._stop(scoped(FieldError.invalid(at, values.node.type, str(error))))
        self.errors.append(scoped(_refusal(rule, values, at, detail)))

    def _message(self, program: CelProgram, values: "_Values") -> str:
        """Return the message that an expression makes; empty if it makes none that can be used."""
        result, cost, failure = _run(program, values, is_optional=False)
        if cost > self._budget:
            raise CelBudgetError(f"messageExpression evaluation failed due to {_OUT_OF_BUDGET}")
        if isinstance(failure, CelBudgetError):
            said = "no further validation rules will be run due to call cost exceeds limit"
            raise CelBudgetError(f"{said} for messageExpression: {quoted(program.expression)}")
        self._budget -= cost
        text = result.strip() if isinstance(result, str) else ""
        return "" if len(text.encode()) > MAX_MESSAGE_BYTES or "\n" in text else text

    def _stop(self, error: FieldError) -> None:
        self.errors.append(error)
        raise _RulesStopped


class _Values:
    """The variables of the rules of one value, converted when first needed."""

    __slots__ = ("_converted", "_old", "_old_converted", "node", "value")

    def __init__(self, node: RuleNode, value: Any, old: Any) -> None:
        self.node = node
        self.value = value
        self._old = old
        self._converted: Any = None
        self._old_converted: Any = None

    def of(self, program: CelProgram, *, is_optional: bool) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if "self" in program.uses:
            if self._converted is None:
                self._converted = self._convert(self.value)
            values["self"] = self._converted
        if "oldSelf" in program.uses:
            if self._old_converted is None and self._old is not None:
                self._old_converted = self._convert(self._old)
            old = self._old_converted
            wrapped = NOTHING if self._old is None else Maybe(old)
            values["oldSelf"] = wrapped if is_optional else old
        return values

    def _made(self, value: Any) -> Any:
        convert = self.node.convert
        return value if convert is None else convert(value)

    def _convert(self, value: Any) -> Any:
        try:
            return self._made(value)
        except (TypeError, ValueError, AttributeError, LookupError):
            raise CelError("no such overload") from None


class _GuardedValues(_Values):
    """The same for an object with fractions, which are no integers for rules."""

    __slots__ = ()

    def _made(self, value: Any) -> Any:
        made = guarded(self.node.schema, value)
        return made.fail() if isinstance(made, Misfit) else made


def _run(
    program: CelProgram, values: _Values, *, is_optional: bool
) -> tuple[Any, int, CelError | None]:
    """Return the result, the cost, and the error if the evaluation failed."""
    try:
        variables = values.of(program, is_optional=is_optional)
    except CelError as error:
        return None, 0, error
    state = program.state(variables, PER_CALL_LIMIT, patience.left())
    try:
        result = program.finish(state)
    except CelPatienceError:
        raise
    except CelError as error:
        patience.spend(state.cost)
        return None, state.cost, error
    patience.spend(state.cost)
    return result, state.cost, None


def _failed(failure: CelError, rule: CompiledRule) -> str:
    text = str(failure)
    if text.startswith("no such overload"):
        said = "call arguments did not match a supported operator, function or macro signature"
        return f"'{text}': {said} for rule: {rule.about}"
    return f"{text} evaluating rule: {rule.about}"


def _refusal(rule: CompiledRule, values: _Values, at: str, detail: str) -> FieldError:
    if rule.reason == "FieldValueForbidden":
        return FieldError.forbidden(at, detail)
    if rule.reason == "FieldValueRequired":
        return FieldError.required(at, detail)
    # Objects and lists are not shown: they may be large.
    hidden = values.node.type in ("object", "array")
    if rule.reason == "FieldValueDuplicate":
        body = "Duplicate value" if hidden else f"Duplicate value: {shown(values.value)}"
        return FieldError("FieldValueDuplicate", at, body)
    body = "Invalid value" if hidden else f"Invalid value: {shown(values.value)}"
    return FieldError("FieldValueInvalid", at, f"{body}: {detail}")
