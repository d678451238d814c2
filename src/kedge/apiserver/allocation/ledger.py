"""AllocationLedger: which Service owns which address and node port, stored or about to be."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import Change, ResourceCache
from kedge.machinery.errors import StatusCause, StatusError

RECORD_SECONDS: Final = 120
"""How long a record keeps others from what no Service has: longer than any request that was begun
without knowing it."""
FREED_KEPT: Final = 4096
"""How many addresses and ports are remembered that Services gave up."""

Allocated = str | int
"""A cluster IP or a node port."""


class AllocationRaced(StatusError):
    """The choice of a write went to another one in between. It may be repeated with another choice;
    without one, it fails as upstream's does."""

    def __init__(self, why: str) -> None:
        message = f"Internal error occurred: {why}"
        super().__init__(500, "InternalError", message, causes=[StatusCause(message=why)])


class AllocationLedger:
    """Derived from the stored Services, so that it is right after every restart. Requests hold
    what they allocate until their Service is stored or refused."""

    def __init__(self, services: ResourceCache, freed: Callable[[Allocated, int], None]) -> None:
        """`freed` is called with what a Service no longer has, and the newest revision that a
        record of it may have."""
        self._freed = freed
        self._owners: dict[Allocated, str] = {}
        """The key of the stored Service that owns it."""
        self._held: dict[Allocated, int] = {}
        """The request that holds it."""
        self._requests: dict[int, list[Allocated]] = {}
        self._stored: dict[int, dict[Allocated, int]] = {}
        """The revisions of the records that a request has stored."""
        self._own: dict[Allocated, int] = {}
        """The last record that this server stored of each, by revision."""
        self._freed_at: dict[Allocated, int] = {}
        """The revision at which a Service was last seen to give it up; of the last ones."""
        for item in services.values():
            self._note(item.document(), item.key)
        services.listeners.add(self._follow)

    def owner(self, allocated: Allocated) -> str | None:
        """Return the key of the stored Service that owns it."""
        return self._owners.get(allocated)

    def is_taken(self, allocated: Allocated) -> bool:
        return allocated in self._owners or allocated in self._held

    def note_record(self, request: Request, allocated: Allocated, revision: int) -> None:
        """Remember that a request has stored a record."""
        self._stored.setdefault(id(request), {})[allocated] = revision
        self._own[allocated] = revision

    def is_dead(self, allocated: Allocated, revision: int) -> bool:
        """Return whether no Service can be stored any more for a record: a Service has given it up
        since, or the writer was this server, for a request that is over or tries again."""
        if revision < self._freed_at.get(allocated, 0):
            return True
        holder = self._stored.get(self._held.get(allocated, 0), {})
        return self._own.get(allocated) == revision and holder.get(allocated) != revision

    def hold(self, request: Request, allocated: Iterable[Allocated]) -> None:
        """Hold all of these for a request until `release`."""
        held = self._requests.setdefault(id(request), [])
        for each in allocated:
            self._held[each] = id(request)
            held.append(each)

    def release(self, request: Request) -> None:
        """End what a request holds; its Service is stored by now, or will not be."""
        stored = self._stored.pop(id(request), {})
        for each in self._requests.pop(id(request), ()):
            self._held.pop(each, None)
            if each in stored and each not in self._owners:
                self._freed(each, stored[each])

    def held(self, request: Request) -> list[Allocated]:
        return self._requests.get(id(request), [])

    def _follow(self, change: Change | None) -> None:
        if change is None:
            return
        before = set(allocated_by(change.previous.document())) if change.previous else set()
        now = set()
        if change.type != "DELETED":
            now = self._note(change.item.document(), change.item.key)
        for each in before - now:
            if self._owners.get(each) == change.item.key:
                del self._owners[each]
            self._note_freed(each, change.revision)
            if not self.is_taken(each):
                self._freed(each, change.revision)

    def _note_freed(self, each: Allocated, revision: int) -> None:
        if self._own.get(each, 0) < revision:
            self._own.pop(each, None)
        self._freed_at.pop(each, None)
        self._freed_at[each] = revision
        if len(self._freed_at) > FREED_KEPT:
            del self._freed_at[next(iter(self._freed_at))]

    def _note(self, service: dict[str, Any], key: str) -> set[Allocated]:
        allocated = set(allocated_by(service))
        self._owners.update(dict.fromkeys(allocated, key))
        return allocated


def allocated_by(service: dict[str, Any]) -> Iterator[Allocated]:
    """Return the addresses and node ports of a Service."""
    spec = service.get("spec") or {}
    for address in spec.get("clusterIPs") or ():
        if address != "None":
            yield address
    for port in spec.get("ports") or ():
        if port.get("nodePort"):
            yield port["nodePort"]
    if spec.get("healthCheckNodePort"):
        yield spec["healthCheckNodePort"]
