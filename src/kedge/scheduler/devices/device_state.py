"""Device state: claims, classes and slices, and the allocations that are not yet written."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource_v1.device_class import DeviceClass
from kedge.api.resource_v1.device_request import alternatives
from kedge.api.resource_v1.device_selector import compiled, device_values
from kedge.api.resource_v1.extended_resources import (
    asks_for_extended,
    classes_by_resource,
    is_made_for_resources,
)
from kedge.api.resource_v1.pod_claims import ClaimMissing, check_owner, claim_name
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_claim_status import AllocationResult
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.resource_v1.resource_slice_types import Device
from kedge.client.informer import Cache, Key
from kedge.machinery.cel import LOOP_PATIENCE, CelError, CelPatienceError
from kedge.scheduler.devices.allocated import AllocatedDevices, allocated_devices
from kedge.scheduler.devices.device_search import (
    ClaimChoice,
    DeviceAllocationError,
    DeviceSearch,
    OutOfSteps,
    StepBudget,
)
from kedge.scheduler.devices.extended_resources import NOT_CREATED_NAME
from kedge.scheduler.devices.pools import Labels, ResourceSliceIndex

NODE_STEPS: Final = 2_500
"""How many steps the search for devices of one node may take."""
POD_STEPS: Final = 10_000
"""The same for all nodes of one decision, which blocks the event loop: for 60 ms at
best, and for longer on a busy machine."""
EVALUATION_STEPS: Final = 250
"""How many steps the first evaluation of an expression for a device counts as: it takes up to 3 ms
on the event loop, and a step takes 6 microseconds. Most evaluations are done before the search."""
LONG_EXPRESSION: Final = 1_024
"""Characters of an expression that is compiled and evaluated in a thread."""
MOST_RESULTS: Final = 16_384
"""How many results of expressions are kept per slice."""

CANNOT: Final = "cannot allocate all claims"
TOO_LONG: Final = "timed out trying to allocate devices"
INVALID_POOLS: Final = "invalid resource pools were encountered"


class PendingAllocation(msgspec.Struct):
    """An allocation that was decided but is not in the cached claim yet."""

    uid: str
    allocation: AllocationResult
    version: int = 0
    """The version of the claim after the write; zero until it is written."""


class DeviceProposal(msgspec.Struct, frozen=True):
    """The devices for a pod's claims on one node, or why there are none."""

    choices: Sequence[ClaimChoice] = ()
    refusal: str = ""
    is_error: bool = False
    """Whether something is wrong with the claim or its class, on any node."""


class SelectorEvaluation(NamedTuple):
    """An expression that is to be evaluated for a device."""

    expression: str
    slice: ResourceSlice
    device: Device

    @property
    def key(self) -> tuple[str, str]:
        return self.expression, self.device.name

    def quick_result(self) -> bool | CelError:
        """Evaluate on the event loop; raises CelPatienceError if that takes too long."""
        if len(self.expression) > LONG_EXPRESSION:
            raise CelPatienceError("too long for the event loop")
        return self._result(LOOP_PATIENCE)

    def result(self) -> bool | CelError:
        """Evaluate in a thread: any user can write a selector that takes a while."""
        return self._result(None)

    def _result(self, patience: int | None) -> bool | CelError:
        try:
            values = device_values(self.slice.spec.driver, self.device)
            return compiled(self.expression).holds(values, patience=patience)
        except CelPatienceError:
            raise
        except CelError as error:
            # Messages name the selector, so they do not quote it, as upstream.
            quoted = f"expression '{self.expression}' resulted in error: "
            return CelError(str(error).removeprefix(quoted))


class DeviceState:
    """All that the search for devices reads."""

    def __init__(self) -> None:
        self.claims: Cache[ResourceClaim] = Cache()
        self.classes: Cache[DeviceClass] = Cache()
        self.slices: Cache[ResourceSlice] = Cache()
        self.overdue: set[str] = set()
        """Uids of claims whose binding conditions did not come true in time."""
        self._pending: dict[Key, PendingAllocation] = {}
        self._allocated: AllocatedDevices | None = None
        self._index: ResourceSliceIndex | None = None
        self._by_resource: dict[str, DeviceClass] | None = None
        """The class of each extended resource; None until it is asked for."""
        self._results: dict[str, tuple[str, dict[tuple[str, str], bool | CelError]]] = {}
        """By slice: its version, and the results of expressions for its devices."""
        self._proposals: dict[tuple[str, str], DeviceProposal] = {}
        """By pod and node, for the decision that is being made."""
        self._budget: tuple[str, StepBudget] = ("", StepBudget(0))
        self.claims.listen(self._claim_changed)
        self.classes.listen(self._class_changed)
        self.slices.listen(self._slice_changed)

    # Changes.

    def _claim_changed(self, key: Key) -> None:
        self._allocated = None
        self.forget_proposals()
        pending, claim = self._pending.get(key), self.claims.get(key.name, key.namespace)
        if pending is None:
            return
        if (
            claim is None
            or claim.metadata.uid != pending.uid
            or claim.status.allocation is not None
            or (pending.version and int(claim.metadata.resourceVersion or 0) >= pending.version)
        ):
            del self._pending[key]

    def _class_changed(self, _: Key) -> None:
        self._by_resource = None
        self.forget_proposals()

    def _slice_changed(self, key: Key) -> None:
        self._index = None
        self.forget_proposals()
        known = self.slices.get(key.name)
        results = self._results.get(key.name)
        if results is not None and (known is None or known.metadata.resourceVersion != results[0]):
            del self._results[key.name]

    def forget_proposals(self) -> None:
        """Begin a new decision."""
        self._proposals.clear()
        self._budget = ("", StepBudget(0))

    # Claims of pods.

    def claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """Return the claims of a pod; raises ClaimMissing with the reason to wait."""
        found: list[ResourceClaim] = []
        for podclaim in pod.spec.resourceClaims:
            name = claim_name(pod, podclaim)
            if name is None:
                continue
            claim = self.claims.get(name, pod.metadata.namespace)
            if claim is None:
                raise ClaimMissing(f'resourceclaim.resource.k8s.io "{name}" not found')
            if claim.metadata.deletionTimestamp:
                raise ClaimMissing(f'resourceclaim "{name}" is being deleted')
            check_owner(pod, podclaim, claim)
            found.append(claim)
        return found

    def class_of(self, resource: str) -> DeviceClass | None:
        """Return the class whose devices provide an extended resource."""
        if self._by_resource is None:
            self._by_resource = classes_by_resource(self.classes)
        return self._by_resource.get(resource)

    def resource_claim_of(self, pod: Pod) -> ResourceClaim | None:
        """Return the claim that was made for the extended resources of a pod."""
        if not asks_for_extended(pod):
            return None
        return next((each for each in self.claims if is_made_for_resources(each, pod)), None)

    def is_pending(self, claim: ResourceClaim) -> bool:
        pending = self._pending.get(_key(claim))
        return pending is not None and pending.uid == claim.metadata.uid

    def reserve(self, claim: ResourceClaim, allocation: AllocationResult) -> None:
        """Count the devices of an allocation as taken from now on."""
        self._pending[_key(claim)] = PendingAllocation(claim.metadata.uid, allocation)
        self._allocated = None
        self.forget_proposals()

    def created(self, claim: ResourceClaim, made: ResourceClaim) -> None:
        """A claim with a reserved allocation was created, and has its name from now on."""
        pending = self._pending.pop(_key(claim))
        self._pending[_key(made)] = PendingAllocation(made.metadata.uid, pending.allocation)

    def written(self, claim: ResourceClaim) -> None:
        """The allocation of a claim was written; the cache will have it soon."""
        pending = self._pending.get(_key(claim))
        if pending is not None and pending.uid == claim.metadata.uid:
            pending.version = int(claim.metadata.resourceVersion or 0)
            # The watch may have been faster than the answer.
            self._claim_changed(_key(claim))

    def release(self, claim: ResourceClaim) -> bool:
        """Free the devices of an allocation that was not written."""
        pending = self._pending.get(_key(claim))
        if pending is None or pending.uid != claim.metadata.uid or pending.version:
            return False
        del self._pending[_key(claim)]
        self._allocated = None
        self.forget_proposals()
        return True

    # The search.

    def propose(
        self, uid: str, claims: Sequence[ResourceClaim], node: str, labels: Labels
    ) -> DeviceProposal:
        """Return devices of a node for the claims of a pod that are not allocated."""
        known = self._proposals.get((uid, node))
        if known is None:
            known = self._proposals[uid, node] = self._searched(uid, claims, node, labels)
        return known

    def proposal(self, uid: str, node: str) -> DeviceProposal | None:
        """Return what was proposed for a pod on a node in this decision."""
        return self._proposals.get((uid, node))

    def _searched(
        self, uid: str, claims: Sequence[ResourceClaim], node: str, labels: Labels
    ) -> DeviceProposal:
        if self._budget[0] != uid:
            self._budget = (uid, StepBudget(POD_STEPS))
        whole = self._budget[1]
        if whole.left <= 0:
            return DeviceProposal(refusal=TOO_LONG)
        budget = StepBudget(min(NODE_STEPS, max(whole.left, 0)))
        granted = budget.left
        pools = self._slice_index().pools(node, labels)
        try:
            search = DeviceSearch(
                claims,
                pools,
                self.classes.get,
                self.allocated(),
                self._matcher(budget),
                budget,
                node=node,
                labels=labels,
            )
            choices = search.run()
        except OutOfSteps:
            return DeviceProposal(refusal=TOO_LONG)
        except DeviceAllocationError as error:
            return DeviceProposal(refusal=str(error), is_error=True)
        finally:
            whole.left -= granted - max(budget.left, 0)
        if choices is None:
            is_invalid = any(pool.is_invalid for pool in pools)
            return DeviceProposal(refusal=INVALID_POOLS if is_invalid else CANNOT)
        return DeviceProposal(choices)

    def allocated(self) -> AllocatedDevices:
        """Return all devices that are allocated or about to be."""
        if self._allocated is None:
            self._allocated = allocated_devices(self._allocations())
        return self._allocated

    def _allocations(self) -> Iterator[AllocationResult]:
        for claim in self.claims:
            if claim.status.allocation is not None:
                yield claim.status.allocation
        for pending in self._pending.values():
            yield pending.allocation

    def _slice_index(self) -> ResourceSliceIndex:
        if self._index is None:
            self._index = ResourceSliceIndex(self.slices)
        return self._index

    # Expressions.

    def _matcher(self, budget: StepBudget) -> Callable[[str, ResourceSlice, Device], bool]:
        def match(expression: str, slice_: ResourceSlice, device: Device) -> bool:
            results = self._results_of(slice_)
            key = (expression, device.name)
            known = results.get(key)
            if known is None:
                budget.spend(EVALUATION_STEPS)
                try:
                    known = SelectorEvaluation(expression, slice_, device).quick_result()
                except CelPatienceError:
                    # The next attempt evaluates it before the search.
                    raise OutOfSteps from None
                results[key] = known
            if isinstance(known, CelError):
                raise known
            return known

        return match

    def _results_of(self, slice_: ResourceSlice) -> dict[tuple[str, str], bool | CelError]:
        name, version = slice_.metadata.name, slice_.metadata.resourceVersion
        known = self._results.get(name)
        if known is None or known[0] != version or len(known[1]) >= MOST_RESULTS:
            known = self._results[name] = (version, {})
        return known[1]

    def evaluate_selectors(
        self, pod: Pod, resources: Iterable[str]
    ) -> Iterator[SelectorEvaluation | None]:
        """Evaluate the expressions of a pod's claims and resources for all devices, one result per
        step.

        The results are kept, so that the search, which is not interrupted, finds them. A step that
        takes too long for the event loop is yielded: the caller runs it and calls `keep`.
        """
        try:
            claims = self.claims_of(pod)
        except ClaimMissing:
            return
        expressions = {
            expression
            for claim in claims
            if claim.status.allocation is None
            for expression in self._expressions(claim)
        }
        for resource in resources:
            if (class_ := self.class_of(resource)) is not None:
                expressions.update(
                    each.cel.expression for each in class_.spec.selectors if each.cel
                )
        for slice_ in list(self.slices) if expressions else ():
            yield None
            for device in slice_.spec.devices:
                if self.slices.get(slice_.metadata.name) is not slice_:
                    break
                for expression in expressions:
                    evaluation = SelectorEvaluation(expression, slice_, device)
                    if evaluation.key not in self._results_of(slice_):
                        yield self._evaluate(evaluation)

    def _evaluate(self, evaluation: SelectorEvaluation) -> SelectorEvaluation | None:
        try:
            self.keep(evaluation, evaluation.quick_result())
        except CelPatienceError:
            return evaluation
        return None

    def keep(self, evaluation: SelectorEvaluation, result: bool | CelError) -> None:
        """Keep a result, unless the slice has changed since."""
        slice_ = evaluation.slice
        if self.slices.get(slice_.metadata.name) is slice_:
            self._results_of(slice_)[evaluation.key] = result

    def _expressions(self, claim: ResourceClaim) -> Iterator[str]:
        for request in claim.spec.devices.requests:
            for wish in alternatives(request):
                class_ = self.classes.get(wish.deviceClassName)
                own = class_.spec.selectors if class_ is not None else ()
                yield from (each.cel.expression for each in (*own, *wish.selectors) if each.cel)


def _key(claim: ResourceClaim) -> Key:
    meta = claim.metadata
    if meta.name == NOT_CREATED_NAME:
        return Key(meta.namespace, f"{meta.name}{meta.uid}")
    return Key(meta.namespace, meta.name)
