"""ResourceQuota: the objects of a namespace together take no more than its quotas allow."""

from typing import TYPE_CHECKING

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Object
from kedge.api.quota.pods import is_terminating
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.quota.ledger import QuotaLedger
from kedge.apiserver.request import Request, check_dry_run

if TYPE_CHECKING:
    from kedge.apiserver.quota.shared_claims import SharedQuotaClaims

_GROWING = frozenset(
    (
        ("", "services"),
        ("", "persistentvolumeclaims"),
        ("resource.k8s.io", "resourceclaims"),
    )
)
"""Resources whose usage an update can increase, by group and plural."""


class ResourceQuotaPlugin(ValidatingPlugin):
    """Keeps the objects of a namespace within its ResourceQuotas, also under concurrent writes."""

    name = "ResourceQuota"

    def __init__(self, ledger: QuotaLedger, shared: "SharedQuotaClaims | None" = None) -> None:
        """`shared` agrees with other servers of the store; None if there can be none."""
        self._ledger = ledger
        self._shared = shared

    async def validate(self, attempt: Attempt) -> None:
        request, obj = attempt.request, attempt.object
        if not self._ledger.limits(request.namespace) or obj is None or not counts(attempt):
            return
        if self._shared is not None:
            await self._agree(self._shared, attempt, obj)
            return
        # A request that tries again, under another name or on a newer object, begins anew.
        self._ledger.release(request)
        claim = self._ledger.claim(request, obj, new=attempt.operation == "CREATE")
        if claim is None:
            return
        if claim.refusal:
            raise refused(attempt, claim.refusal)
        if not check_dry_run(request.query.all("dryRun"), "CreateOptions"):
            self._ledger.hold(request, claim)

    async def _agree(self, shared: "SharedQuotaClaims", attempt: Attempt, obj: Object) -> None:
        request = attempt.request
        refusal = await shared.admit(
            request,
            obj,
            new=attempt.operation == "CREATE",
            dry=check_dry_run(request.query.all("dryRun"), "CreateOptions"),
        )
        if refusal:
            raise refused(attempt, refusal)

    def holds(self, request: Request) -> bool:
        """Whether a quota is charged for the write."""
        return self._ledger.holds(request)

    def release(self, request: Request) -> None:
        """The request is over, whether or not anything was stored."""
        if self._ledger.release(request) and self._shared is not None:
            self._shared.released(request.namespace)


def counts(attempt: Attempt) -> bool:
    """Whether the write can take anything from a quota that was not taken before."""
    request = attempt.request
    if attempt.operation == "CREATE":
        return not request.subresource
    if attempt.operation != "UPDATE":
        return False
    new, old = attempt.object, attempt.old
    if isinstance(new, Pod) and isinstance(old, Pod):
        if request.subresource:
            return request.subresource == "resize"
        return is_terminating(new) != is_terminating(old)
    resource = request.resource
    return (resource.group, resource.plural) in _GROWING and not request.subresource
