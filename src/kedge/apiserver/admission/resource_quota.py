"""ResourceQuota: the objects of a namespace together take no more than its quotas allow."""

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.quota.pods import is_terminating
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.quota.first_quota import FirstQuota
from kedge.apiserver.request import Request, check_dry_run

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

    def __init__(self, quota: FirstQuota) -> None:
        self._quota = quota

    async def validate(self, attempt: Attempt) -> None:
        request, obj = attempt.request, attempt.object
        claims = self._quota.get()
        if claims is None or not claims.ledger.limits(request.namespace):
            return
        if obj is None or not counts(attempt):
            return
        refusal = await claims.admit(
            request,
            obj,
            new=attempt.operation == "CREATE",
            dry=check_dry_run(request.query.all("dryRun"), "CreateOptions"),
        )
        if refusal:
            raise refused(attempt, refusal)

    def holds(self, request: Request) -> bool:
        """Whether a quota is charged for the write."""
        claims = self._quota.claims
        return claims is not None and claims.ledger.holds(request)

    def release(self, request: Request) -> None:
        """The request is over, whether or not anything was stored."""
        if self._quota.claims is not None:
            self._quota.claims.release(request)


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
