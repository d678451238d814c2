"""Change objects by the MutatingAdmissionPolicies that are bound to a request."""

import asyncio
from collections.abc import Iterator, Sequence, Set
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver.admission.chain import AdmissionPlugin, Attempt
from kedge.apiserver.admission.patched_object import fitted, settled
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.long_work import LONG, off_loop
from kedge.apiserver.policies.mutation import MutatingParts, MutationError, PolicyMutation, patched
from kedge.apiserver.policies.policy_request import (
    Invocation,
    Misconfigured,
    PolicySurroundings,
    RequestValues,
    invocations,
    is_exempt,
)
from kedge.apiserver.policies.policy_set import BoundPolicy, PolicyBinding, PolicySet
from kedge.apiserver.verbs import decode
from kedge.apiserver.webhooks import review
from kedge.apiserver.webhooks.admission_metrics import error_type
from kedge.machinery.cel import CelError
from kedge.machinery.errors import StatusCause, StatusError, internal
from kedge.machinery.patience import PatienceError, on_event_loop

Policies = tuple[BoundPolicy[MutatingParts], ...]

DEPTH_OF_OWNERS: Final = 4
"""Levels down to an entry of metadata.managedFields and its parts."""
MOST_PARTS: Final = 100
"""Members of a value that are compared one by one."""


class MutatingPolicies:
    """The policies that have bindings; `earlier` are the plugins before them."""

    def __init__(
        self,
        policies: PolicySet[MutatingParts],
        around: PolicySurroundings,
        earlier: Sequence[AdmissionPlugin] = (),
    ) -> None:
        self._policies = policies
        self._around = around
        self._earlier = tuple(earlier)

    async def mutate(self, attempt: Attempt) -> Object | None:
        if attempt.object is None or is_exempt(attempt):
            return attempt.object  # before the policies are read: a broken one must be repairable
        policies = await self._policies.bound(self._around.clock)
        if not policies:
            return attempt.object
        chosen = {each.name for each in policies if each.is_reinvoked or not attempt.is_repeated}
        run = _PolicyRun(attempt, self._around)
        await run.round(policies, chosen)
        if run.has_changed and not run.has_failed and not attempt.is_repeated:
            await run.repeat(policies, self._earlier)
        return run.result()


class _PolicyRun:
    """One object on its way past the policies."""

    def __init__(self, attempt: Attempt, around: PolicySurroundings) -> None:
        self._attempt = attempt
        self._around = around
        self._errors: list[tuple[str, str]] = []
        """Messages, each with the reason of its error."""
        self._before: set[str] = set()
        """Reinvoked policies that have run since the latest change."""
        self._outdated: set[str] = set()
        """Reinvoked policies that have run before it."""
        self._unpruned: tuple[str, dict[str, Any]] | None = None
        """The custom object after the latest mutation with the fields that its schema does not
        declare, and its version. Upstream drops them only after the last mutation."""
        self.has_changed = False
        """Whether a mutation was made, even one without an effect, or changed the object."""

    @property
    def has_failed(self) -> bool:
        """Whether a policy refuses the request; then nothing runs again."""
        return bool(self._errors)

    async def round(self, policies: Policies, chosen: Set[str]) -> None:
        """Let the chosen policies change the object. Of the others, the match conditions are
        evaluated all the same: upstream refuses a request if one fails on the changed object."""
        about = review.subject(self._attempt)
        if not about.own_kind:
            return
        # All are chosen for the object as it was before the first of them.
        for each in invocations(policies, self._attempt, about, self._around):
            await self._around.clock.give_way()
            if isinstance(each, Misconfigured):
                if not each.policy.ignores_failure:
                    self._fail(each.policy, each.binding, each.why, "Forbidden")
                continue
            known = self._attempt.object
            await self._invoke(each, about, is_chosen=each.policy.name in chosen)
            if self._attempt.object != known:
                self.has_changed = True
                self._outdated |= self._before
                self._before = set()
            if each.policy.is_reinvoked:
                self._before.add(each.policy.name)
        if self.has_changed:
            # Upstream also runs the last policy again that has made a mutation.
            self._outdated |= self._before

    async def repeat(self, policies: Policies, earlier: Sequence[AdmissionPlugin]) -> None:
        """Run what came before a change again."""
        known = self._attempt.object
        self._attempt = replace(self._attempt, is_repeated=True)
        for plugin in earlier:
            changed = await plugin.mutate(self._attempt)
            self._attempt = replace(self._attempt, object=changed)
        if self._attempt.object != known:
            self._outdated |= self._before
            self._unpruned = None
        await self.round(policies, frozenset(self._outdated))

    def result(self) -> Object | None:
        """Return the changed object; raise the errors of the policies."""
        if self._errors:
            message, reason = self._errors[0]
            error = refused(self._attempt, message)
            causes = [StatusCause(message=each) for each, _ in self._errors]
            raise StatusError(403, reason, message, details=error.details, causes=causes)
        return self._attempt.object

    async def _invoke(
        self,
        invocation: Invocation[MutatingParts],
        about: review.ReviewSubject,
        *,
        is_chosen: bool,
    ) -> None:
        policy = invocation.policy
        try:
            values = {} if policy.conditions is None else await self._values(about, invocation)
            if not await self._around.conditions_hold(policy, values, about.operation):
                return
        except CelError as error:
            self._report(invocation, str(error))
            return
        for mutation in policy.parts if is_chosen else ():
            begun, why = self._around.clock.monotonic(), ""
            try:
                await self._mutate(mutation, invocation, about)
            except MutationError as error:
                why = str(error)
                self._report(invocation, why)
            seconds = self._around.clock.monotonic() - begun
            self._around.metrics.mutation(
                policy.name, invocation.binding.name, error=error_type(why), seconds=seconds
            )

    async def _values(
        self, about: review.ReviewSubject, invocation: Invocation[MutatingParts]
    ) -> dict[str, Any]:
        # Made anew each time: a mutation may have changed the object.
        values = await RequestValues(self._attempt, about, self._around).of(invocation)
        if self._unpruned is not None and self._unpruned[0] == invocation.view.version:
            values["object"] = self._unpruned[1]
        return values

    async def _mutate(
        self,
        mutation: PolicyMutation,
        invocation: Invocation[MutatingParts],
        about: review.ReviewSubject,
    ) -> None:
        view, resource = invocation.view, self._attempt.request.resource
        if not view.is_schema_made:
            # That of a large custom kind takes long; the request may be in another version.
            await asyncio.to_thread(lambda: view.schema)
        was, document = await self._patched(mutation, invocation, about)
        weight = _weight(document)
        shaped = await off_loop(weight, _shaped, view, document)
        self._unpruned = (view.version, document) if view.custom else None
        self.has_changed = True
        if await self._is_same(was, shaped, weight):
            return
        seen = await review.seen_as(shaped, view, resource)
        changed = await off_loop(weight, _completed, resource, seen)
        obj = settled(self._attempt, changed)
        self._attempt = msgspec.structs.replace(self._attempt, object=obj)

    async def _is_same(self, one: dict[str, Any], other: dict[str, Any], weight: int) -> bool:
        """Whether two documents are equal. Large ones are compared part by part: all owners of the
        fields of a megabyte at once would take 50 ms, in which no thread can run."""
        if weight < LONG:
            return one == other
        for mine, theirs in parts_of(one, other, DEPTH_OF_OWNERS):
            await self._around.clock.give_way()
            if mine != theirs:
                return False
        return True

    async def _patched(
        self,
        mutation: PolicyMutation,
        invocation: Invocation[MutatingParts],
        about: review.ReviewSubject,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the object before and after a mutation; a large one is changed in a thread."""
        values, view = await self._values(about, invocation), invocation.view
        was: dict[str, Any] = values["object"]
        if _weight(was) < LONG:
            try:
                with on_event_loop():
                    return was, patched(mutation, values, view)
            except PatienceError:
                values = await self._values(about, invocation)
        return was, await asyncio.to_thread(patched, mutation, values, view)

    def _report(self, invocation: Invocation[MutatingParts], why: str) -> None:
        if not invocation.policy.ignores_failure:
            self._fail(invocation.policy, invocation.binding, why, "Invalid")

    def _fail(
        self,
        policy: BoundPolicy[MutatingParts],
        binding: PolicyBinding | None,
        why: str,
        reason: str,
    ) -> None:
        if binding is None:
            by = f'policy "{policy.name}"'
        else:
            by = f"policy '{policy.name}' with binding '{binding.name}'"
        self._errors.append((f"{by} denied request: {why}", reason))


def parts_of(one: Any, other: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    """Yield the parts of two values that are equal if and only if the values are."""
    if depth and isinstance(one, dict) and isinstance(other, dict) and len(one) <= MOST_PARTS:
        yield one.keys(), other.keys()
        for name in one.keys() & other.keys():
            yield from parts_of(one[name], other[name], depth - 1)
    elif depth and isinstance(one, list) and isinstance(other, list) and len(one) <= MOST_PARTS:
        yield len(one), len(other)
        for mine, theirs in zip(one, other, strict=False):
            yield from parts_of(mine, theirs, depth - 1)
    else:
        yield one, other


def _weight(document: dict[str, Any]) -> int:
    """Return how many bytes a document has; the most if it has values that JSON does not know."""
    try:
        return len(msgspec.json.encode(document))
    except (TypeError, ValueError, RecursionError):
        return LONG


def _completed(resource: Resource[Any], document: dict[str, Any]) -> Object:
    """Return a document as an object with its defaults."""
    completed: Object = resource.strategy.default(decode.to_object(resource, document))
    return completed


def _shaped(view: Resource[Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return a patched document in the shape of its kind; 500 if it has another one."""
    unknown: list[str] = []
    try:
        shaped = fitted(view, document, unknown)
    except StatusError as error:
        raise internal(error.message) from None
    if unknown and not view.custom:
        fields = ", ".join(f'unknown field "{name}"' for name in unknown)
        raise internal(f"strict decoding error: {fields}")
    return shaped
