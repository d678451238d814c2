"""The CEL expressions of admission policies: compiled when a policy is written and when it acts."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kedge.machinery.cel import CelError, CelFoldError, CelProgram, Environment, uses
from kedge.machinery.cel.types import DYN, CelType
from kedge.machinery.errors import FieldError

Types = Mapping[str, CelType]


class PolicyCompiler:
    """Compiles the expressions of one policy. Variables are compiled in order, for later ones."""

    def __init__(self, spec: Mapping[str, Any], *, types: Types | None = None) -> None:
        self._params = bool(spec.get("paramKind"))
        self._is_mutating = "mutations" in spec
        self._types = types
        """The types of `object`, `oldObject` and `params`, if they are known."""
        self._variables: dict[str, CelType] = {}
        self._environments: dict[tuple[bool, bool], Environment] = {}

    def variable(self, name: str, expression: str) -> CelProgram:
        """Compile a variable, which later expressions may use."""
        program = self._compiled(expression, self._environment(authorizer=True))
        self._variables[name] = program.type
        self._environments.clear()
        return program

    def checked_variable(self, name: str, expression: str) -> None:
        """Declare a variable for type checks; one that does not compile may be of any type."""
        try:
            self.variable(name, expression)
        except CelError:
            self._variables[name] = DYN
            self._environments.clear()

    def expression(self, expression: str) -> CelProgram:
        """Compile an expression of any type."""
        return self._compiled(expression, self._environment(authorizer=True))

    def condition(self, expression: str) -> CelProgram:
        """Compile a match condition, which knows no variables."""
        return self._typed(expression, uses.match_conditions(self._params), "bool")

    def validation(self, expression: str) -> CelProgram:
        """Compile an expression that is true or false."""
        return self._typed(expression, self._environment(authorizer=True), "bool")

    def message(self, expression: str) -> CelProgram:
        """Compile an expression that makes up a message."""
        return self._typed(expression, self._environment(authorizer=False), "string")

    def annotation(self, expression: str) -> CelProgram:
        """Compile the value of an audit annotation. Upstream lets it name the authorizer, which
        then fails in every request."""
        program = self._compiled(expression, self._environment(authorizer=True))
        if program.type.kind not in ("string", "null"):
            why = "must evaluate to one of [string null_type] but got"
            raise CelError(f"{why} {program.type}")
        return program

    def mutation(self, expression: str, wanted: str) -> CelProgram:
        """Compile a mutation; `wanted` is `Object` or `list(JSONPatch)`."""
        program = self._compiled(expression, self._environment(authorizer=True, mutation=True))
        if str(program.type) != wanted:
            raise CelError(f"must evaluate to {wanted} but got {program.type}")
        return program

    def _environment(self, *, authorizer: bool, mutation: bool = False) -> Environment:
        key = authorizer, mutation
        if key not in self._environments:
            self._environments[key] = uses.policy(
                self._variables,
                params=self._params,
                authorizer=authorizer,
                mutation=mutation or self._is_mutating,
                types=self._types,
            )
        return self._environments[key]

    def _typed(self, expression: str, environment: Environment, kind: str) -> CelProgram:
        program = self._compiled(expression, environment)
        if program.type.kind != kind:
            raise CelError(f"must evaluate to {kind} but got {program.type}")
        return program

    def _compiled(self, expression: str, environment: Environment) -> CelProgram:
        try:
            return CelProgram(expression, environment)
        except CelFoldError:
            raise
        except CelError as error:
            raise CelError(f"compilation failed: {error}") from None


def expression_error(path: str, expression: str, error: CelError) -> FieldError:
    """Return the error of an expression that does not compile."""
    if isinstance(error, CelFoldError):
        return FieldError("InternalError", path, f"Internal error: {error}")
    return FieldError.invalid(path, expression, str(error))


PATCH_TYPES: Final = {"ApplyConfiguration": "Object", "JSONPatch": "list(JSONPatch)"}
PATCH_FIELDS: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


def expression_errors(spec: Mapping[str, Any], field: str) -> Iterator[tuple[int, FieldError]]:
    """Yield the errors of the expressions of one list of a policy, each with its index."""
    compiler = PolicyCompiler(spec)
    if field != "matchConditions":
        for i, variable in enumerate(spec.get("variables") or ()):
            error = _variable_error(compiler, variable, f"spec.variables[{i}]")
            if error is not None and field == "variables":
                yield i, error
    for i, written in enumerate(spec.get(field) or ()):
        for error in _errors(compiler, field, written, f"spec.{field}[{i}]"):
            yield i, error


def _variable_error(
    compiler: PolicyCompiler, variable: Mapping[str, Any], path: str
) -> FieldError | None:
    expression = variable.get("expression") or ""
    if not expression.strip():
        return None
    try:
        compiler.variable(variable.get("name") or "", expression)
    except CelError as error:
        return expression_error(f"{path}.expression", expression, error)
    return None


def _errors(
    compiler: PolicyCompiler, field: str, written: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    for name, compile_, expression in _expressions(compiler, field, written):
        if not expression.strip():
            continue
        try:
            compile_(expression)
        except CelError as error:
            yield expression_error(f"{path}.{name}", expression, error)


def _expressions(
    compiler: PolicyCompiler, field: str, written: Mapping[str, Any]
) -> Iterator[tuple[str, Any, str]]:
    if field == "matchConditions":
        yield "expression", compiler.condition, written.get("expression") or ""
    elif field == "validations":
        yield "expression", compiler.validation, written.get("expression") or ""
        yield "messageExpression", compiler.message, written.get("messageExpression") or ""
    elif field == "auditAnnotations":
        yield "valueExpression", compiler.annotation, written.get("valueExpression") or ""
    elif field == "mutations":
        kind = written.get("patchType") or ""
        if kind in PATCH_FIELDS:
            part = PATCH_FIELDS[kind]
            expression = (written.get(part) or {}).get("expression") or ""
            wanted = PATCH_TYPES[kind]
            yield f"{part}.expression", lambda text: compiler.mutation(text, wanted), expression
