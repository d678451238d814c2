"""Evaluate the ValidatingAdmissionPolicies that are bound to a request."""

import asyncio
from typing import Any, Final

import msgspec

from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.policies.policy_request import (
    Invocation,
    Misconfigured,
    PolicySurroundings,
    RequestValues,
    invocations,
    is_exempt,
)
from kedge.apiserver.policies.policy_set import BoundPolicy, PolicyBinding, PolicySet
from kedge.apiserver.policies.validation import (
    Denial,
    Judgement,
    ValidatingParts,
    failed,
    judge,
)
from kedge.apiserver.webhooks import review
from kedge.apiserver.webhooks.admission_metrics import error_type
from kedge.machinery.cel import CelError
from kedge.machinery.errors import StatusCause, StatusError
from kedge.machinery.patience import PatienceError, on_event_loop

_FAILURE: Final = "validation.policy.admission.k8s.io/validation_failure"
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


class ValidatingPolicies:
    """The policies that have bindings."""

    def __init__(self, policies: PolicySet[ValidatingParts], around: PolicySurroundings) -> None:
        self._policies = policies
        self._around = around

    async def validate(self, attempt: Attempt) -> None:
        if is_exempt(attempt):
            return  # before the policies are read: one that cannot be read must be repairable
        if policies := await self._policies.bound(self._around.clock):
            await _PolicyReview(attempt, self._around).run(policies)


class _PolicyReview:
    """One request and what the policies have said about it so far."""

    def __init__(self, attempt: Attempt, around: PolicySurroundings) -> None:
        self._attempt = attempt
        self._around = around
        self._about = review.subject(attempt)
        self._values = RequestValues(attempt, self._about, around)
        self._denied: list[tuple[str, Denial]] = []
        """The message that names policy and binding, and the denial."""
        self._annotations: dict[str, list[str]] = {}

    async def run(self, policies: tuple[BoundPolicy[ValidatingParts], ...]) -> None:
        for each in invocations(policies, self._attempt, self._about, self._around):
            await self._around.clock.give_way()
            if isinstance(each, Misconfigured):
                if not each.policy.ignores_failure:
                    self._deny(each.policy, each.binding, Denial(each.why))
                continue
            begun = self._around.clock.monotonic()
            judgement = await self._judged(each)
            self._record(each, judgement, self._around.clock.monotonic() - begun)
        annotations = self._attempt.request.annotations
        for key, values in self._annotations.items():
            annotations[key] = ", ".join(values)
        if self._denied:
            raise self._refusal(*self._denied[0])

    async def _judged(self, invocation: Invocation[ValidatingParts]) -> Judgement:
        policy = invocation.policy
        values = await self._values.of(invocation)
        try:
            if not await self._around.conditions_hold(policy, values, self._attempt.operation):
                return Judgement()
        except CelError as error:
            return failed(policy, str(error))
        try:
            with on_event_loop():
                return judge(policy, values)
        except PatienceError:
            values = await self._values.of(invocation)
        return await asyncio.to_thread(judge, policy, values)

    def _record(
        self, invocation: Invocation[ValidatingParts], judgement: Judgement, seconds: float
    ) -> None:
        policy, binding = invocation.policy, invocation.binding
        for denial in judgement.denials:
            self._act(policy, binding, denial)
            for action in binding.actions:
                self._around.metrics.validation(
                    policy.name,
                    binding.name,
                    error=error_type(denial.message),
                    action=action.lower(),
                    seconds=seconds,
                )
        for key, value in judgement.annotations:
            kept = self._annotations.setdefault(f"{policy.name}/{key}", [])
            if value not in kept:
                kept.append(value)
        for failure in judgement.failures:
            self._deny(policy, binding, Denial(failure))

    def _act(
        self, policy: BoundPolicy[ValidatingParts], binding: PolicyBinding, denial: Denial
    ) -> None:
        request = self._attempt.request
        for action in binding.actions:
            if action == "Deny":
                self._deny(policy, binding, denial)
            elif action == "Audit":
                request.annotations.setdefault(_FAILURE, _failure(policy, binding, denial))
            elif action == "Warn":
                about = f"'{policy.name}' with binding '{binding.name}'"
                request.warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy {about}: {denial.message}"
                )

    def _deny(
        self,
        policy: BoundPolicy[ValidatingParts],
        binding: PolicyBinding | None,
        denial: Denial,
    ) -> None:
        by = f"ValidatingAdmissionPolicy '{policy.name}'"
        if binding is not None:
            by = f"{by} with binding '{binding.name}'"
        self._denied.append((f"{by} denied request: {denial.message}", denial))

    def _refusal(self, message: str, denial: Denial) -> StatusError:
        error = refused(self._attempt, message)
        return StatusError(
            _CODES.get(denial.reason, 422),
            denial.reason,
            error.message,
            details=error.details,
            causes=[StatusCause(message=message)],
        )


def _failure(policy: BoundPolicy[Any], binding: PolicyBinding, denial: Denial) -> str:
    told = {
        "message": denial.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": denial.place,
        "validationActions": list(binding.actions),
    }
    return msgspec.json.encode([told]).decode()
