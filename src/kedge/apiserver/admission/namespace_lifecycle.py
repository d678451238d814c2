"""NamespaceLifecycle: nothing is created where no namespace is, or in one that is going away."""

from collections.abc import Callable

from kedge.api.core_v1.namespace import RESOURCE
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.watchcache import Item
from kedge.machinery.errors import StatusCause, forbidden, not_found

IMMORTAL = ("default", "kube-system", "kube-public")
REMEMBERED = 4096
"""Namespaces whose state is kept."""


class NamespaceLifecycle:
    """Refuses objects in namespaces that do not exist or are being deleted, and the deletion of
    `default`, `kube-system` and `kube-public`."""

    name = "NamespaceLifecycle"

    def __init__(self, find: Callable[[str], Item | None]) -> None:
        self._find = find
        """Gives a namespace by name."""
        self._known: dict[str, tuple[int, bool]] = {}
        """The revisions of namespaces that were looked at, and whether they are ending. Those that
        are gone stay until there are too many, so the objects themselves are not kept."""

    async def mutate(self, attempt: Attempt) -> Object | None:
        # Before other plugins look for things in a namespace that is not there.
        if attempt.operation == "CREATE" and attempt.request.namespace:
            self._check(attempt)
        return attempt.object

    async def validate(self, attempt: Attempt) -> None:
        request = attempt.request
        if request.resource.plural == "namespaces" and not request.resource.group:
            if attempt.operation == "DELETE" and request.name in IMMORTAL:
                raise forbidden("", "namespaces", request.name, "this namespace may not be deleted")
        elif attempt.operation == "CREATE" and request.namespace:
            # Once more: it may have begun to end while others were asked.
            self._check(attempt)

    def _check(self, attempt: Attempt) -> None:
        request = attempt.request
        found = self._find(request.namespace)
        if found is None:
            self._known.pop(request.namespace, None)
            raise not_found("", "namespaces", request.namespace)
        known = self._known.get(request.namespace)
        if known is None or known[0] != found.revision:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[request.namespace] = (found.revision, _is_ending(found))
        if known[1]:
            raise _terminating(attempt)


def _is_ending(item: Item) -> bool:
    namespace = RESOURCE.decode(item.body)
    return bool(namespace.metadata.deletionTimestamp) or namespace.status.phase == "Terminating"


def _terminating(attempt: Attempt) -> Exception:
    request = attempt.request
    name = attempt.object.metadata.name if attempt.object is not None else request.name
    why = (
        f"unable to create new content in namespace {request.namespace} "
        "because it is being terminated"
    )
    message = f"namespace {request.namespace} is being terminated"
    cause = StatusCause("NamespaceTerminating", message, "metadata.namespace")
    return forbidden(request.resource.group, request.resource.plural, name, why, [cause])
