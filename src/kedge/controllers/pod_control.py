"""PodControl: creates and deletes pods for an owner, and records events."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.model import Object, ObjectMeta, OwnerReference
from kedge.api.resource import Resource
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.controllers.namespaces import is_leaving as namespace_is_leaving
from kedge.controllers.shared_informers import ObjectCache
from kedge.machinery.errors import StatusError

SLOW_START: Final = 1
"""How many are made at first; twice as many each time that all went well."""
AT_ONCE: Final = 32
"""How many at most: the server answers no sooner if more wait, and others want to be heard too."""
BURST: Final = 500
"""How many pods one reconciliation creates or deletes at most."""
MOST_WAITING: Final = 500
"""How many pods of one owner may wait for a node; more are created when these are scheduled.

`replicas` and `parallelism` go up to 2**31-1. Upstream's controllers would fill the store with
pods that cannot run; a limit of 20 requests a second delays it for some hours."""
NAME_LIMIT: Final = 253


def owned_by(resource: Resource[Any], owner: Object) -> OwnerReference:
    """Return the owner reference of an object's controller."""
    return OwnerReference(
        apiVersion=resource.api_version,
        kind=resource.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        blockOwnerDeletion=True,
    )


def pod_of(resource: Resource[Any], owner: Object, template: PodTemplateSpec) -> Pod:
    """A pod as the owner posts it; the server gives it a name that begins with the owner's."""
    prefix = f"{owner.metadata.name}-"
    return Pod(
        metadata=ObjectMeta(
            generateName=prefix if len(prefix) <= NAME_LIMIT else owner.metadata.name,
            namespace=owner.metadata.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            finalizers=template.metadata.finalizers,
            ownerReferences=[owned_by(resource, owner)],
        ),
        spec=template.spec,
    )


def count_waiting(pods: Iterable[Pod]) -> int:
    """Return how many pods have no node."""
    return sum(not pod.spec.nodeName for pod in pods)


def room_for_more(waiting: int) -> int:
    """Return how many pods may be created now for an owner with so many pods without a node."""
    return max(min(BURST, MOST_WAITING - waiting), 0)


class PodControl:
    """The pod writes of one controller. Each call returns when the shared cache has the result."""

    def __init__(self, client: Client, pods: ObjectCache[Pod], recorder: Recorder) -> None:
        self._client = client
        self._pods = pods
        self._recorder = recorder

    async def create(self, owner: Object, pod: Pod) -> Pod:
        try:
            made = await self._client.create(RESOURCE, pod)
        except StatusError as error:
            # Events in a terminating namespace are refused.
            if not namespace_is_leaving(error):
                message = f"Error creating: {error}"
                self._recorder.record(owner, WARNING, "FailedCreate", message)
            raise
        self._recorder.record(
            owner, NORMAL, "SuccessfulCreate", f"Created pod: {made.metadata.name}"
        )
        await self._pods.written(made)
        return made

    async def delete(self, owner: Object, pod: Pod) -> None:
        """Delete a pod; one that is gone or going already is no failure."""
        meta = pod.metadata
        options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
        try:
            await self._client.delete(RESOURCE, meta.name, meta.namespace, options=options)
        except StatusError as error:
            if error.code not in (404, 409):
                message = f"Error deleting: {error}"
                self._recorder.record(owner, WARNING, "FailedDelete", message)
                raise
        else:
            self._recorder.record(owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {meta.name}")
        await self._pods.left(pod)


def record_held_back(recorder: Recorder, owner: Object) -> None:
    """Record an event that explains missing pods. It comes before the pods are created, because
    their events use up the rate limit of the owner."""
    message = f"at most {MOST_WAITING} pods wait for a node: more are created when these have one"
    recorder.record(owner, NORMAL, "PodsHeldBack", message)


async def in_growing_batches(count: int, act: Callable[[int], Awaitable[object]]) -> None:
    """Call `act` `count` times, in growing batches; stop after the first batch with a failure.

    If no call can succeed, for instance with a used up quota, one fails and not five hundred.
    """
    begun, done, size = 0, 0, SLOW_START
    while begun < count:
        batch = range(begun, min(begun + size, count))
        outcomes = await asyncio.gather(*map(act, batch), return_exceptions=True)
        begun, size = batch.stop, min(size * 2, AT_ONCE)
        failures = [each for each in outcomes if isinstance(each, BaseException)]
        done += len(outcomes) - len(failures)
        if failures:
            raise Shortfall(done, failures)


class Shortfall(Exception):
    """Some writes of a batch failed."""

    def __init__(self, done: int, failures: Sequence[BaseException]) -> None:
        super().__init__(str(failures[0]))
        self.done = done
        """How much of it succeeded."""
        self.failures = failures
