"""The decision of a ValidatingAdmissionPolicy about one request with one parameter."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kedge.api.builtin.policy_programs import PolicyCompiler
from kedge.apiserver.policies.policy_set import BoundPolicy
from kedge.apiserver.policies.policy_variables import PolicyVariables, without_authorizer
from kedge.apiserver.webhooks.conditions import OUT_OF_BUDGET
from kedge.machinery import patience
from kedge.machinery.cel import PER_CALL_LIMIT, CelError, CelProgram

POLICY_LIMIT: Final = 10_000_000
"""The cost limit of all expressions of one policy for one binding and parameter."""
MAX_MESSAGE_BYTES: Final = 5120
MAX_ANNOTATION_BYTES: Final = 10_240


@dataclass(frozen=True, slots=True)
class PolicyValidation:
    """One of the validations of a policy."""

    expression: str
    program: CelProgram | CelError
    message: str
    message_program: CelProgram | None
    reason: str


@dataclass(frozen=True, slots=True)
class PolicyAnnotation:
    """One of the audit annotations of a policy."""

    key: str
    expression: str
    program: CelProgram | CelError


class ValidatingParts(NamedTuple):
    """The parts that only ValidatingAdmissionPolicies have."""

    validations: tuple[PolicyValidation, ...]
    annotations: tuple[PolicyAnnotation, ...]


class Denial(NamedTuple):
    """A validation that does not hold, or cannot be evaluated."""

    message: str
    reason: str = "Invalid"
    place: int = 0
    """The index of the validation."""


class Judgement(NamedTuple):
    """The result of a policy for one request."""

    denials: tuple[Denial, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    failures: tuple[str, ...] = ()
    """Errors of audit annotations, which deny the request whatever the binding's actions are."""


class OutOfBudget(CelError):
    """The expressions of a policy cost too much together."""


def validating_parts(spec: Mapping[str, Any], compiler: PolicyCompiler) -> ValidatingParts:
    """Compile the validations and audit annotations of a policy."""
    return ValidatingParts(
        tuple(_validation(each, compiler) for each in spec.get("validations") or ()),
        tuple(_annotation(each, compiler) for each in spec.get("auditAnnotations") or ()),
    )


def _validation(written: Mapping[str, Any], compiler: PolicyCompiler) -> PolicyValidation:
    expression, message = written.get("expression") or "", written.get("messageExpression") or ""
    program = _compiled(compiler.validation, expression)
    made = _compiled(compiler.message, message) if message else None
    return PolicyValidation(
        expression=expression,
        program=program,
        message=(written.get("message") or "").strip(),
        message_program=made if isinstance(made, CelProgram) else None,
        reason=written.get("reason") or "Invalid",
    )


def _annotation(written: Mapping[str, Any], compiler: PolicyCompiler) -> PolicyAnnotation:
    expression = written.get("valueExpression") or ""
    return PolicyAnnotation(written["key"], expression, _compiled(compiler.annotation, expression))


def _compiled(compile_: Any, expression: str) -> CelProgram | CelError:
    try:
        program: CelProgram = compile_(expression)
    except CelError as error:
        return error
    return program


class Budget:
    """Evaluates expressions one after another, within the limit of all together."""

    def __init__(self, values: Mapping[str, Any], left: int) -> None:
        self._values = values
        self.left = left

    def of_messages(self) -> "Budget":
        """Return what is left, for expressions without the authorizer."""
        return Budget(without_authorizer(self._values), self.left)

    def evaluate(self, program: CelProgram | CelError, expression: str) -> Any:
        """Return the value of an expression; CelError in Kubernetes' words."""
        said = f"expression '{expression}' resulted in error"
        if isinstance(program, CelError):
            raise CelError(f"{said}: {program}")
        state = program.state(self._values, PER_CALL_LIMIT, patience.left())
        try:
            return program.finish(state)
        except patience.PatienceError:
            raise
        except CelError as error:
            raise CelError(f"{said}: {error}") from None
        finally:
            variables: PolicyVariables = self._values["variables"]
            cost = state.cost + variables.take_cost()
            patience.spend(state.cost)
            self.left -= cost
            if self.left < 0:
                raise OutOfBudget(OUT_OF_BUDGET)


def judge(policy: BoundPolicy[ValidatingParts], values: Mapping[str, Any]) -> Judgement:
    """Evaluate the validations and annotations of a policy."""
    budget = Budget(values, POLICY_LIMIT)
    try:
        denials = tuple(_denials(policy, budget))
        unasked = Budget(without_authorizer(values), POLICY_LIMIT)
        published, failures = _annotations(policy, unasked)
    except OutOfBudget as error:
        return failed(policy, str(error))
    return Judgement(denials, published, failures)


def failed(policy: BoundPolicy[ValidatingParts], why: str) -> Judgement:
    """Return the judgement of a policy that could not be evaluated."""
    return Judgement() if policy.ignores_failure else Judgement((Denial(why),))


def _denials(policy: BoundPolicy[ValidatingParts], budget: Budget) -> Iterator[Denial]:
    validations = policy.parts.validations
    results = [_result(each, budget) for each in validations]
    # Messages are made after all validations, from the budget that is left.
    try:
        made = _messages(policy, results, budget.of_messages())
    except OutOfBudget as error:
        # Upstream then knows no validation that holds.
        results = [each if isinstance(each, str) else _no_message(error) for each in results]
        made = {}
    for i, (validation, result) in enumerate(zip(validations, results, strict=True)):
        if isinstance(result, str):
            if not policy.ignores_failure:
                yield Denial(result, place=i)
        elif not result:
            told = made.get(i) or validation.message
            told = told or f"failed expression: {validation.expression.strip()}"
            yield Denial(told, validation.reason, i)


def _no_message(error: OutOfBudget) -> str:
    return f"failed messageExpression: {error}"


def _result(validation: PolicyValidation, budget: Budget) -> bool | str:
    """Return whether a validation holds, or the error of its expression."""
    try:
        return budget.evaluate(validation.program, validation.expression) is True
    except OutOfBudget:
        raise
    except CelError as error:
        return str(error)


def _messages(
    policy: BoundPolicy[ValidatingParts], results: Sequence[bool | str], budget: Budget
) -> dict[int, str]:
    """Return the messages that expressions make up, by the index of their validation.

    Upstream makes all of them for each request, and fails if they exceed the budget. Those of
    validations that hold are not shown: they are left out if they cannot exceed it.
    """
    made: dict[int, str] = {}
    programs = [each.message_program for each in policy.parts.validations]
    count = sum(program is not None for program in programs) + len(policy.variables)
    is_limited = count * PER_CALL_LIMIT > budget.left
    for i, program in enumerate(programs):
        if program is not None and (is_limited or results[i] is False):
            made[i] = _message(program, budget)
    return made


def _message(program: CelProgram, budget: Budget) -> str:
    """Return a message; empty if it has errors, several lines or too many bytes."""
    try:
        value = budget.evaluate(program, "")
    except OutOfBudget:
        raise
    except CelError:
        return ""
    made = value.strip() if isinstance(value, str) else ""
    return "" if len(made.encode()) > MAX_MESSAGE_BYTES or "\n" in made else made


def _annotations(
    policy: BoundPolicy[ValidatingParts], budget: Budget
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    published: list[tuple[str, str]] = []
    failures: list[str] = []
    for annotation in policy.parts.annotations:
        try:
            value = budget.evaluate(annotation.program, annotation.expression)
        except OutOfBudget:
            raise
        except CelError as error:
            if not policy.ignores_failure:
                failures.append(str(error))
            continue
        text = value.strip() if isinstance(value, str) else ""
        if text:
            cut = text.encode()[:MAX_ANNOTATION_BYTES].decode(errors="ignore")
            published.append((annotation.key, cut))
    return tuple(published), tuple(failures)
