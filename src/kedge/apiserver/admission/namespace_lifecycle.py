"""NamespaceLifecycle: nothing is created where no namespace is, or in one that is going away."""

from collections.abc import Callable

from kedge.api.core_v1.namespace import RESOURCE
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.watchcache import Item
from kedge.machinery.errors import Cause, forbidden, not_found

IMMORTAL = ("default", "kube-system", "kube-public")


class NamespaceLifecycle:
    name = "NamespaceLifecycle"

    def __init__(self, find: Callable[[str], Item | None]) -> None:
        self._find = find
        """Gives a namespace by name."""

    async def mutate(self, attempt: Attempt) -> Object | None:
        return attempt.object

    async def validate(self, attempt: Attempt) -> None:
        request = attempt.request
        if request.resource.plural == "namespaces" and not request.resource.group:
            if attempt.operation == "DELETE" and request.name in IMMORTAL:
                raise forbidden("", "namespaces", request.name, "this namespace may not be deleted")
        elif attempt.operation == "CREATE" and request.namespace:
            self._check(attempt)

    def _check(self, attempt: Attempt) -> None:
        request = attempt.request
        found = self._find(request.namespace)
        if found is None:
            raise not_found("", "namespaces", request.namespace)
        namespace = RESOURCE.decode(found.body)
        if namespace.metadata.deletionTimestamp or namespace.status.phase == "Terminating":
            raise _terminating(attempt)


def _terminating(attempt: Attempt) -> Exception:
    request = attempt.request
    name = attempt.object.metadata.name if attempt.object is not None else request.name
    why = (
        f"unable to create new content in namespace {request.namespace} "
        "because it is being terminated"
    )
    message = f"namespace {request.namespace} is being terminated"
    cause = Cause("NamespaceTerminating", message, "metadata.namespace")
    return forbidden(request.resource.group, request.resource.plural, name, why, [cause])
