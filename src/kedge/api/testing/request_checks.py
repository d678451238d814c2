"""Checks of the requests of a controller: functions that find mistakes, and their assertions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from kedge.api.testing.recorded_request import RecordedRequest

WRITES: Final = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_SHOWN: Final = 20
"""Requests that a failed assertion lists."""


def busy(requests: Iterable[RecordedRequest]) -> list[RecordedRequest]:
    """Return the requests that a controller with nothing to do would not make. It may watch, and
    renew leases."""
    return [
        each
        for each in requests
        if each.verb != "watch" and (each.group, each.resource) != ("coordination.k8s.io", "leases")
    ]


def uncached_lists(requests: Iterable[RecordedRequest]) -> list[RecordedRequest]:
    """Return the lists without a resourceVersion, which a server must read from its store.
    Informers give one, except after a watch that ended with 410."""
    return [
        each
        for each in requests
        if each.verb == "list" and each.resource and not each.resource_version
        if not each.continues and not each.name
    ]


def unchanged_writes(requests: Iterable[RecordedRequest]) -> list[RecordedRequest]:
    """Return the writes that changed nothing."""
    return [each for each in requests if each.unchanged and not each.dry_run]


def conflicts(requests: Iterable[RecordedRequest]) -> list[RecordedRequest]:
    """Return the writes that met a newer object; not those that failed on purpose."""
    return [
        each for each in requests if each.code == 409 and each.verb in WRITES and not each.fault
    ]


def hot_loops(requests: Iterable[RecordedRequest], most: int) -> dict[str, int]:
    """Return the kinds of requests that were made more than so many times, with their number:
    the same verb on the same object by the same user."""
    counts = Counter(_label(each) for each in busy(requests))
    return {label: number for label, number in counts.most_common() if number > most}


def _label(request: RecordedRequest) -> str:
    what = "/".join(filter(None, (request.resource, request.subresource))) or request.path
    where = "/".join(filter(None, (request.namespace, request.name)))
    return " ".join(filter(None, (request.user, request.verb, what, where)))


def assert_quiet(requests: Iterable[RecordedRequest]) -> None:
    """Fail if a controller with nothing to do was busy."""
    _assert_none(busy(requests), "requests of a controller that should have nothing to do")


def assert_cached(requests: Iterable[RecordedRequest]) -> None:
    """Fail if there are lists without a cache."""
    _assert_none(uncached_lists(requests), "lists without a resourceVersion")


def assert_effective(requests: Iterable[RecordedRequest]) -> None:
    """Fail if there are writes that changed nothing."""
    _assert_none(unchanged_writes(requests), "writes that changed nothing")


def assert_no_conflicts(requests: Iterable[RecordedRequest]) -> None:
    """Fail if there are conflicts."""
    _assert_none(conflicts(requests), "conflicts")


def assert_no_hot_loops(requests: Iterable[RecordedRequest], most: int) -> None:
    """Fail if a request was made again and again."""
    if found := hot_loops(requests, most):
        lines = (f"  {number} times: {label}" for label, number in [*found.items()][:_SHOWN])
        raise AssertionError("\n".join((f"made more than {most} times:", *lines)))


def _assert_none(found: Sequence[RecordedRequest], what: str) -> None:
    if not found:
        return
    lines = [f"  {each}" for each in found[:_SHOWN]]
    more = [f"  and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    raise AssertionError("\n".join((f"{len(found)} {what}:", *lines, *more)))
