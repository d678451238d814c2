"""Device search: choose devices of one node for all requests of some claims.

This follows the structured allocator of Kubernetes: claims, requests and devices are tried in
order, depth first, and the first complete choice is the result. The search is exponential in the
worst case. Upstream ends it after ten seconds; here it ends after a number of steps, because it
runs on the event loop. It keeps its own stack, because the depth is the number of devices.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kedge.api.resource_v1 import sizes
from kedge.api.resource_v1.device_class import DeviceClass
from kedge.api.resource_v1.device_request import (
    ALL,
    EXACT_COUNT,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    alternatives,
)
from kedge.api.resource_v1.device_taints import tolerates
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.resource_v1.resource_slice_types import Device
from kedge.machinery.cel import CelError
from kedge.machinery.quantity import Quantity
from kedge.scheduler.devices.allocated import AllocatedDevices
from kedge.scheduler.devices.constraint import AttributeConstraint
from kedge.scheduler.devices.consumed_capacity import consumed_amounts, fits
from kedge.scheduler.devices.pools import DeviceID, DevicePool, PoolID, device_reaches

Labels = Mapping[str, str]
Match = Callable[[str, ResourceSlice, Device], bool]
"""Whether an expression is true of a device of a slice; raises CelError."""


class DeviceAllocationError(Exception):
    """The claims cannot be allocated, for a reason that other devices do not change."""


class OutOfSteps(Exception):
    """The search takes too long."""


Candidate = tuple[DevicePool, ResourceSlice, Device]
CANDIDATES_PER_STEP: Final = 16
"""How many devices are compared with a request in the time of one step."""


class StepBudget:
    """Counts the steps of searches."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


class ChosenDevice(NamedTuple):
    """A device that was chosen for a request."""

    request: str
    wish: ExactDeviceRequest | DeviceSubRequest
    id: DeviceID
    device: Device
    slice: ResourceSlice
    consumed: Mapping[str, Quantity] | None
    """Amounts of a shared device; None if the device is not shared."""


class ClaimChoice(NamedTuple):
    """The devices of one claim, and the class and name of the chosen alternative per request."""

    devices: Sequence[ChosenDevice]
    requests: Sequence[tuple[str, DeviceClass]]
    alternatives: Sequence[int] = ()
    """The index of the chosen alternative, for each request that has any."""


class Wish(msgspec.Struct, frozen=True):
    """A request or an alternative, prepared for one node."""

    request: DeviceRequest
    wish: ExactDeviceRequest | DeviceSubRequest
    class_: DeviceClass
    count: int
    every: Sequence[tuple[DevicePool, ResourceSlice, Device]] = ()
    """All devices that match, with the mode All."""

    @property
    def name(self) -> str:
        if isinstance(self.wish, DeviceSubRequest):
            return f"{self.request.name}/{self.wish.name}"
        return self.request.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which constraints refer to it."""
        return (self.request.name, self.name)

    @property
    def is_admin(self) -> bool:
        return isinstance(self.wish, ExactDeviceRequest) and bool(self.wish.adminAccess)

    @property
    def capacity(self) -> Mapping[str, Quantity]:
        return self.wish.capacity.requests if self.wish.capacity is not None else {}


class Position(NamedTuple):
    """The next device to choose."""

    claim: int = 0
    request: int = 0
    alternative: int | None = None
    device: int = 0
    start: int = 0
    """The first candidate to try: those before it were tried for the same request."""


class Choice(NamedTuple):
    """One way to go on from a position, and how to undo it."""

    position: Position | None
    """None says that all devices are chosen."""
    undo: Callable[[], None] | None = None


class TooManyDevices(Exception):
    """A claim would get more devices than it can have: only another alternative helps."""


class SearchFrame(msgspec.Struct):
    """The choices at one position, and how to undo the one that is tried."""

    choices: Iterator[Choice]
    has_alternatives: bool
    undo: Callable[[], None] | None = None


class DeviceSearch:
    """One search for the devices of some claims on one node."""

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        pools: Sequence[DevicePool],
        classes: Callable[[str], DeviceClass | None],
        allocated: AllocatedDevices,
        match: Match,
        budget: StepBudget,
        *,
        node: str,
        labels: Labels,
    ) -> None:
        self._claims = claims
        self._pools = pools
        self._classes = classes
        self._allocated = allocated
        self._match = match
        self._budget = budget
        self._node = node
        self._labels = labels
        self._selectable: dict[tuple[int, int, int, DeviceID], bool] = {}
        self._selected: dict[tuple[int, int, int], list[Candidate | DeviceAllocationError]] = {}
        self._candidates = [
            (pool, slice_, device) for pool in pools for slice_, device in pool.devices()
        ]
        self._whole: dict[DeviceID, set[int]] = {}
        """Whole devices that were chosen, and the claims they were chosen for."""
        self._shared: dict[DeviceID, list[Mapping[str, Quantity]]] = {}
        self._counters = CounterAccount(allocated)
        self._chosen: list[list[ChosenDevice]] = [[] for _ in claims]
        self._alternatives: dict[tuple[int, int], int] = {}
        self._wishes = [
            [list(self._prepared(i, j, request)) for j, request in enumerate(_requests(claim))]
            for i, claim in enumerate(claims)
        ]
        self._check_sizes()
        self._constraints = [
            [AttributeConstraint(each) for each in claim.spec.devices.constraints]
            for claim in claims
        ]

    def run(self) -> list[ClaimChoice] | None:
        """Return the devices of each claim; None if there are none."""
        stack = [SearchFrame(self._choices(Position()), False)]
        while stack:
            self._budget.spend()
            frame = stack[-1]
            if frame.undo is not None:
                frame.undo()
                frame.undo = None
            try:
                choice = next(frame.choices, None)
            except TooManyDevices:
                _back_to_alternatives(stack)
                continue
            if choice is None:
                stack.pop()
            elif choice.position is None:
                return [self._choice(i) for i in range(len(self._claims))]
            else:
                frame.undo = choice.undo
                position = choice.position
                stack.append(SearchFrame(self._choices(position), self._has_options(position)))
        return None

    def _choice(self, claim: int) -> ClaimChoice:
        requests, options = [], []
        for i, wishes in enumerate(self._wishes[claim]):
            index = self._alternatives.get((claim, i), 0)
            requests.append((wishes[index].name, wishes[index].class_))
            if wishes[index].request.firstAvailable:
                options.append(index)
        return ClaimChoice(self._chosen[claim], requests, options)

    # Preparation.

    def _prepared(self, claim: int, index: int, request: DeviceRequest) -> Iterator[Wish]:
        for i, wish in enumerate(alternatives(request)):
            class_ = self._classes(wish.deviceClassName)
            where = f"claim {_shown(self._claims[claim])}, request {request.name}"
            if class_ is None:
                why = f"could not retrieve device class {wish.deviceClassName}"
                raise DeviceAllocationError(f"{where}: {why}")
            found = Wish(request, wish, class_, wish.count)
            if wish.allocationMode == ALL:
                every = list(self._every((claim, index, i), found, where))
                found = Wish(request, wish, class_, len(every), every)
            elif wish.allocationMode != EXACT_COUNT:
                raise DeviceAllocationError(
                    f"{where}: unsupported count mode {wish.allocationMode}"
                )
            yield found

    def _every(
        self, key: tuple[int, int, int], wish: Wish, where: str
    ) -> Iterator[tuple[DevicePool, ResourceSlice, Device]]:
        for pool in self._pools:
            for is_unusable, why in (
                (pool.is_incomplete, "being updated"),
                (pool.is_invalid, "invalid"),
            ):
                if is_unusable:
                    raise DeviceAllocationError(
                        f"{where}: asks for all devices, but resource pool {pool.id} "
                        f"is currently {why}"
                    )
            for slice_, device in pool.devices():
                self._budget.spend()
                id_ = DeviceID(pool.id.driver, pool.id.pool, device.name)
                if self._is_selectable(key, wish, slice_, device, id_) and self._fits(
                    wish, device, id_
                ):
                    yield pool, slice_, device

    def _check_sizes(self) -> None:
        for claim, requests in zip(self._claims, self._wishes, strict=True):
            least = sum(min((wish.count for wish in wishes), default=0) for wishes in requests)
            if least > sizes.RESULTS:
                raise DeviceAllocationError(
                    f"claim {_shown(claim)}: number of requested devices {least} "
                    f"exceeds the claim limit of {sizes.RESULTS}"
                )

    # Choices.

    def _has_options(self, position: Position) -> bool:
        if position.claim >= len(self._claims) or position.alternative is not None:
            return False
        requests = self._wishes[position.claim]
        return position.request < len(requests) and len(requests[position.request]) > 1

    def _choices(self, position: Position) -> Iterator[Choice]:
        """Yield the ways to go on; each is undone before the next is asked for."""
        if position.claim >= len(self._claims):
            yield Choice(None)
            return
        requests = self._wishes[position.claim]
        if position.request >= len(requests):
            yield Choice(Position(position.claim + 1))
            return
        wishes = requests[position.request]
        if position.alternative is None:
            for i in range(len(wishes)):
                self._alternatives[position.claim, position.request] = i
                yield Choice(Position(position.claim, position.request, i))
            return
        wish = wishes[position.alternative]
        if wish.wish.allocationMode == ALL and not wish.every:
            return
        if position.device >= wish.count:
            yield Choice(Position(position.claim, position.request + 1))
            return
        if len(self._chosen[position.claim]) + wish.count - position.device > sizes.RESULTS:
            raise TooManyDevices
        yield from self._devices(position, wish)

    def _devices(self, position: Position, wish: Wish) -> Iterator[Choice]:
        """Yield the devices that can be the next one of a request."""
        is_every = wish.wish.allocationMode == ALL
        assert position.alternative is not None
        key = (position.claim, position.request, position.alternative)
        candidates = wish.every if is_every else self._options(key, wish)
        start = position.device if is_every else position.start
        for i in range(start, start + 1 if is_every else len(candidates)):
            self._budget.spend()
            candidate = candidates[i]
            if isinstance(candidate, DeviceAllocationError):
                raise candidate
            pool, slice_, device = candidate
            id_ = DeviceID(pool.id.driver, pool.id.pool, device.name)
            if self._is_taken(wish, id_, position.claim):
                continue
            undo = self._take(position, wish, pool, slice_, device, id_, must=is_every)
            if undo is not None:
                following = position._replace(device=position.device + 1, start=i + 1)
                yield Choice(following, undo)

    def _options(
        self, key: tuple[int, int, int], wish: Wish
    ) -> Sequence[Candidate | DeviceAllocationError]:
        """Return the free devices that a request selects, up to the first that has an error.

        They are looked for once per request: the search itself comes back to them many times.
        """
        known = self._selected.get(key)
        if known is not None:
            return known
        self._budget.spend(1 + len(self._candidates) // CANDIDATES_PER_STEP)
        found: list[Candidate | DeviceAllocationError] = []
        for candidate in self._candidates:
            pool, slice_, device = candidate
            id_ = DeviceID(pool.id.driver, pool.id.pool, device.name)
            if not wish.is_admin and id_ in self._allocated.whole:
                continue
            try:
                if self._is_selectable(key, wish, slice_, device, id_):
                    found.append(candidate)
            except DeviceAllocationError as error:
                found.append(error)
                break
        self._selected[key] = found
        return found

    def _is_taken(self, wish: Wish, id_: DeviceID, claim: int) -> bool:
        users = self._whole.get(id_, ())
        if wish.is_admin:
            return claim in users
        return bool(users) or id_ in self._allocated.whole

    def _take(
        self,
        position: Position,
        wish: Wish,
        pool: DevicePool,
        slice_: ResourceSlice,
        device: Device,
        id_: DeviceID,
        *,
        must: bool,
    ) -> Callable[[], None] | None:
        """Choose a device; return how to undo it, or None if it cannot be chosen."""
        is_shared = bool(device.allowMultipleAllocations)
        if not self._fits(wish, device, id_) or not tolerates(wish.wish.tolerations, device):
            return None
        # A shared device has consumed its counters with its first allocation.
        counts = not (is_shared and (id_ in self._shared or id_ in self._allocated.shared))
        if counts and not self._counters.take(pool, device):
            return None
        if not self._add_to_constraints(position.claim, wish, device, id_):
            if counts:
                self._counters.give_back(pool, device)
            if must:
                claim = _shown(self._claims[position.claim])
                raise DeviceAllocationError(
                    f"claim {claim}, request {_own_name(wish)}: cannot add device {id_} "
                    "because a claim constraint would not be satisfied"
                )
            return None
        consumed = consumed_amounts(wish.capacity, device) if is_shared else None
        if consumed is None:
            self._whole.setdefault(id_, set()).add(position.claim)
        else:
            self._shared.setdefault(id_, []).append(consumed)
        chosen = ChosenDevice(wish.name, wish.wish, id_, device, slice_, consumed)
        self._chosen[position.claim].append(chosen)

        def undo() -> None:
            self._chosen[position.claim].pop()
            if consumed is None:
                self._whole[id_].discard(position.claim)
            else:
                self._shared[id_].pop()
                if not self._shared[id_]:
                    del self._shared[id_]
            for constraint in self._constraints[position.claim]:
                constraint.remove(wish.names)
            if counts:
                self._counters.give_back(pool, device)

        return undo

    def _add_to_constraints(self, claim: int, wish: Wish, device: Device, id_: DeviceID) -> bool:
        added: list[AttributeConstraint] = []
        for constraint in self._constraints[claim]:
            if not constraint.add(wish.names, device, id_):
                for each in added:
                    each.remove(wish.names)
                return False
            added.append(constraint)
        return True

    def _fits(self, wish: Wish, device: Device, id_: DeviceID) -> bool:
        if not device.allowMultipleAllocations:
            return fits(wish.capacity, device)
        taken = self._allocated.shared.get(id_, {})
        return fits(wish.capacity, device, taken, *self._shared.get(id_, ()))

    # Selectors.

    def _is_selectable(
        self,
        key: tuple[int, int, int],
        wish: Wish,
        slice_: ResourceSlice,
        device: Device,
        id_: DeviceID,
    ) -> bool:
        """Whether the class, the request and the node select a device."""
        known = self._selectable.get((*key, id_))
        if known is None:
            known = (
                self._selects(wish.class_.spec.selectors, wish.class_, slice_, device)
                and self._selects(wish.wish.selectors, self._claims[key[0]], slice_, device)
                and (
                    not slice_.spec.perDeviceNodeSelection
                    or device_reaches(device, self._node, self._labels)
                )
            )
            self._selectable[*key, id_] = known
        return known

    def _selects(
        self,
        selectors: Sequence[DeviceSelector],
        owner: DeviceClass | ResourceClaim,
        slice_: ResourceSlice,
        device: Device,
    ) -> bool:
        for i, selector in enumerate(selectors):
            if selector.cel is None:
                raise DeviceAllocationError(f"{_owner(owner)}: selector #{i}: CEL expression empty")
            try:
                if not self._match(selector.cel.expression, slice_, device):
                    return False
            except CelError as error:
                raise DeviceAllocationError(
                    f"{_owner(owner)}: selector #{i}: CEL runtime error: {error}"
                ) from error
        return True


class CounterAccount(msgspec.Struct):
    """The counters of pools: what devices consume, allocated before and chosen now."""

    allocated: AllocatedDevices
    _left: dict[PoolID, dict[tuple[str, str], int]] = msgspec.field(default_factory=dict)
    """The rest of each counter, in billionths of a unit."""

    def take(self, pool: DevicePool, device: Device) -> bool:
        """Consume the counters of a device; False if they do not suffice."""
        if not device.consumesCounters:
            return True
        left = self._left_of(pool)
        consumed = _consumption(device)
        if any(amount > left.get(name, 0) for name, amount in consumed.items()):
            return False
        # Upstream refuses the device if any counter of the pool is overdrawn, also another one.
        if any(amount < 0 for amount in left.values()):
            return False
        for name, amount in consumed.items():
            left[name] -= amount
        return True

    def give_back(self, pool: DevicePool, device: Device) -> None:
        if device.consumesCounters:
            left = self._left_of(pool)
            for name, amount in _consumption(device).items():
                left[name] += amount

    def _left_of(self, pool: DevicePool) -> dict[tuple[str, str], int]:
        left = self._left.get(pool.id)
        if left is None:
            left = self._left[pool.id] = {
                (name, counter): amount.value.nanos
                for name, each in pool.counters.items()
                for counter, amount in each.counters.items()
            }
            for part in (*pool.slices, *pool.elsewhere):
                for device in part.spec.devices:
                    if DeviceID(pool.id.driver, pool.id.pool, device.name) in self.allocated:
                        for name, amount in _consumption(device).items():
                            left[name] = left.get(name, 0) - amount
        return left


def _consumption(device: Device) -> dict[tuple[str, str], int]:
    return {
        (each.counterSet, name): counter.value.nanos
        for each in device.consumesCounters
        for name, counter in each.counters.items()
    }


def _back_to_alternatives(stack: list[SearchFrame]) -> None:
    """Leave all positions up to the last one with alternatives."""
    while stack and not stack[-1].has_alternatives:
        frame = stack.pop()
        if frame.undo is not None:
            frame.undo()


def _requests(claim: ResourceClaim) -> Sequence[DeviceRequest]:
    return claim.spec.devices.requests


def _shown(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _owner(owner: DeviceClass | ResourceClaim) -> str:
    if isinstance(owner, DeviceClass):
        return f"class {owner.metadata.name}"
    return f"claim {_shown(owner)}"


def _own_name(wish: Wish) -> str:
    return wish.wish.name if isinstance(wish.wish, DeviceSubRequest) else wish.request.name
