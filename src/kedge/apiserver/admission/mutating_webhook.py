"""MutatingAdmissionWebhook: asks webhooks one after another; each may change what the next sees."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kedge.api.model import Object
from kedge.apiserver.admission.chain import AdmissionPlugin, Attempt, MutatingPlugin
from kedge.apiserver.admission.patched_object import fitted, settled
from kedge.apiserver.long_work import off_loop
from kedge.apiserver.verbs import decode
from kedge.apiserver.webhooks import review
from kedge.apiserver.webhooks.caller import CallFailed
from kedge.apiserver.webhooks.configuration import Hook, Match
from kedge.apiserver.webhooks.dispatch import (
    MOST_SECONDS,
    TOO_LATE,
    ReviewedObjects,
    Webhooks,
    failed,
)
from kedge.machinery.container_count import has_too_many
from kedge.machinery.errors import StatusError, internal, timeout
from kedge.machinery.patch import PatchError, apply_json

_MUTATION = "mutation.webhook.admission.k8s.io/"


class MutatingAdmissionWebhook(MutatingPlugin):
    """Calls the webhooks of MutatingWebhookConfigurations one after another; each may change the
    object.

    It is the last plugin that changes objects: those before it run again after a webhook's
    change.
    """

    name = "MutatingAdmissionWebhook"

    def __init__(self, webhooks: Webhooks, earlier: Sequence[AdmissionPlugin] = ()) -> None:
        self._webhooks = webhooks
        self._earlier = tuple(earlier)

    async def mutate(self, attempt: Attempt) -> Object | None:
        matches = self._webhooks.matching(attempt)
        if not matches:
            return attempt.object
        try:
            async with asyncio.timeout(MOST_SECONDS):
                return await _Mutation(self._webhooks, attempt, matches).run(self._earlier)
        except TimeoutError:
            raise timeout(TOO_LATE) from None


class _Mutation:
    """One object on its way past the webhooks."""

    def __init__(self, webhooks: Webhooks, attempt: Attempt, matches: tuple[Match, ...]) -> None:
        self._webhooks = webhooks
        self._attempt = attempt
        self._matches = matches
        self._changed = False
        self._asked: set[str] = set()
        """Webhooks that want to be asked again, and have seen the latest change."""
        self._outdated: set[str] = set()
        """Webhooks that want to be asked again, and have not seen it."""

    async def run(self, earlier: Sequence[AdmissionPlugin]) -> Object | None:
        """The object after one round, and after a second one if the first changed anything."""
        await self._round(0)
        if self._changed:
            known = self._attempt.object
            self._attempt = replace(self._attempt, is_repeated=True)
            for plugin in earlier:
                self._become(await plugin.mutate(self._attempt))
            if self._attempt.object != known:
                self._outdate()
            await self._round(1)
        return self._attempt.object

    async def _round(self, number: int) -> None:
        for match in self._matches:
            hook = match.hook
            # The second round calls only webhooks that want it and that saw the object before a
            # change.
            if number and hook.uid not in self._outdated:
                continue
            about = review.subject(self._attempt)
            seen = await self._webhooks.seen(self._attempt, about, match)
            if seen is None:
                continue
            if await self._ask(seen, number):
                self._changed = True
                self._outdate()
            if hook.called_again:
                self._asked.add(hook.uid)

    async def _ask(self, seen: ReviewedObjects, number: int) -> bool:
        """Whether the webhook changed the object."""
        hook, request = seen.match.hook, self._attempt.request
        key = f"{_MUTATION}round_{number}_index_{hook.index}"
        changed = False
        try:
            verdict = await self._webhooks.ask(request, seen, mutating=True)
            changed = await self._apply(seen, verdict)
        except CallFailed as error:
            refusal = failed(hook, error)
            if refusal is not None:
                raise refusal from None
            self._webhooks.annotate(request, f"failed-open.{key}", hook.name)
        self._webhooks.annotate(request, key, _note(hook, changed))
        return changed

    async def _apply(self, seen: ReviewedObjects, verdict: review.AdmissionVerdict) -> bool:
        document = await off_loop(verdict.weight, _patched, seen, verdict)
        if document is None:
            return False
        resource = self._attempt.request.resource
        try:
            own = await review.seen_as(document, seen.match.resource, resource)
        except StatusError as error:
            raise internal(error.message) from None
        self._become(await off_loop(verdict.weight, _accepted, self._attempt, own))
        return True

    def _become(self, obj: Object | None) -> None:
        if obj is not self._attempt.object:
            self._attempt = replace(self._attempt, object=obj)

    def _outdate(self) -> None:
        self._outdated |= self._asked
        self._asked = set()


def _patched(seen: ReviewedObjects, verdict: review.AdmissionVerdict) -> dict[str, Any] | None:
    """Return the object as the webhook wants it, in the version that it was shown; None if that
    changes nothing."""
    operations = _operations(verdict.patch)
    if not operations:
        return None
    hook = seen.match.hook
    if seen.object is None or not seen.about.own_kind:
        why = "attempted to modify the object, which is not supported for this operation"
        raise internal(f'admission webhook "{hook.name}" {why}')
    if verdict.patch_type != "JSONPatch":
        raise CallFailed(f'unsupported patch type "{verdict.patch_type}"')
    try:
        patched = fitted(seen.match.resource, apply_json(seen.object, operations), [])
    except PatchError as error:
        raise internal(error.message) from None
    except StatusError as error:
        raise internal(error.message) from None
    return None if patched == seen.object else patched


def _accepted(attempt: Attempt, document: dict[str, Any]) -> Object | None:
    """Return a patched document as the object of the attempt."""
    resource = attempt.request.resource
    try:
        changed = decode.to_object(resource, document)
    except StatusError as error:
        raise internal(error.message) from None
    return settled(attempt, resource.strategy.default(changed))


def _operations(patch: bytes) -> list[Any]:
    if not patch:
        return []
    if has_too_many(patch):
        raise _undecodable("the patch contains too many lists and objects")
    try:
        operations = msgspec.json.decode(patch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _undecodable(str(error)) from None
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise _undecodable("a JSON patch must be a list of operations")
    return operations


def _undecodable(why: str) -> CallFailed:
    return CallFailed(f"received undecodable patch in webhook response: {why}")


def _note(hook: Hook, changed: bool) -> str:
    told = {"configuration": hook.configuration, "webhook": hook.name, "mutated": changed}
    return msgspec.json.encode(told).decode()
