"""ValidatingAdmissionWebhook: asks all webhooks that care at once; any of them may refuse."""

import asyncio

from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.webhooks import review
from kedge.apiserver.webhooks.caller import CallFailed
from kedge.apiserver.webhooks.dispatch import (
    MOST_SECONDS,
    TOO_LATE,
    ReviewedObjects,
    Webhooks,
    failed,
)
from kedge.machinery.errors import StatusError, timeout

_FAILED_OPEN = "failed-open.validating.webhook.admission.k8s.io/round_0_index_"


class ValidatingAdmissionWebhook(ValidatingPlugin):
    """Calls the webhooks of ValidatingWebhookConfigurations, all at once; each may refuse."""

    name = "ValidatingAdmissionWebhook"

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    async def validate(self, attempt: Attempt) -> None:
        matches = self._webhooks.matching(attempt)
        if not matches:
            return
        about = review.subject(attempt)
        views = [await self._webhooks.seen(attempt, about, match) for match in matches]
        await self._ask_all(attempt, [seen for seen in views if seen is not None])

    async def _ask_all(self, attempt: Attempt, views: list[ReviewedObjects]) -> None:
        try:
            async with asyncio.timeout(MOST_SECONDS), asyncio.TaskGroup() as tasks:
                asked = [
                    tasks.create_task(self._ask(attempt, seen, index))
                    for index, seen in enumerate(views)
                ]
        except TimeoutError:
            raise timeout(TOO_LATE) from None
        for task in asked:
            if (refusal := task.result()) is not None:
                raise refusal

    async def _ask(self, attempt: Attempt, seen: ReviewedObjects, index: int) -> StatusError | None:
        """Why the webhook refuses. Not raised: the others are to be heard to the end."""
        hook = seen.match.hook
        try:
            await self._webhooks.ask(attempt.request, seen, mutating=False)
        except StatusError as refusal:
            return refusal
        except CallFailed as error:
            refusal_by_failure = failed(hook, error)
            if refusal_by_failure is None:
                self._webhooks.annotate(attempt.request, f"{_FAILED_OPEN}{index}", hook.name)
            return refusal_by_failure
        return None
