"""LimitRanger: applies the defaults and limits of a namespace to pods and claims.

It does not refuse workloads. It warns if their pods would be refused.
"""

from kedge.api.core_v1.limit_range import RESOURCE, LimitRange
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.limits.bounds import NamespaceLimits, bounds_of
from kedge.api.limits.defaulting import with_defaults
from kedge.api.limits.violations import claim_violations, pod_violations, refusal
from kedge.api.limits.workloads import outcome, pod_from, template_of
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.authorization.following import follow, place_of
from kedge.apiserver.watchcache import Item, ResourceCache

_WRITES = ("CREATE", "UPDATE")


class LimitRanger:
    """Gives pods the defaults of the LimitRanges of their namespace and enforces their bounds on
    pods and claims; warns about workloads whose pods would be refused."""

    name = "LimitRanger"

    def __init__(self, ranges: ResourceCache) -> None:
        self._ranges: dict[str, dict[str, LimitRange]] = {}
        """By namespace and name; a namespace without any is not here."""
        self._bounds: dict[str, NamespaceLimits] = {}
        """The combined limits by namespace, dropped when a LimitRange changes."""
        follow(ranges, self._take)

    def _take(self, ranges: ResourceCache, item: Item) -> None:
        namespace, name = place_of(ranges, item)
        self._bounds.pop(namespace, None)
        known = self._ranges.setdefault(namespace, {})
        if ranges.get(item.key) is None:
            known.pop(name, None)
        else:
            known[name] = RESOURCE.decode(item.body)
        if not known:
            del self._ranges[namespace]

    def bounds(self, namespace: str) -> NamespaceLimits | None:
        """Return the limits of a namespace; None if it has no LimitRange."""
        made = self._bounds.get(namespace)
        if made is None and namespace in self._ranges:
            made = self._bounds[namespace] = bounds_of(self._ranges[namespace].values())
        return made

    async def mutate(self, attempt: Attempt) -> Object | None:
        pod = attempt.object
        if not isinstance(pod, Pod):
            return pod
        bounds = self.bounds(attempt.request.namespace)
        if bounds is None or not concerns(attempt):
            return pod
        return with_defaults(bounds, pod)

    async def validate(self, attempt: Attempt) -> None:
        bounds = self.bounds(attempt.request.namespace)
        if bounds is None or not concerns(attempt):
            return
        obj = attempt.object
        if isinstance(obj, Pod):
            violations = pod_violations(bounds, obj)
        elif isinstance(obj, PersistentVolumeClaim):
            violations = claim_violations(bounds, obj)
        else:
            attempt.request.warnings += warnings(bounds, obj)
            return
        if violations:
            raise refused(attempt, refusal(violations))


def concerns(attempt: Attempt) -> bool:
    """Whether a write is one that LimitRanges have a say in."""
    if attempt.operation not in _WRITES:
        return False
    if attempt.old is not None and attempt.old.metadata.deletionTimestamp:
        return False
    subresource = attempt.request.subresource
    if isinstance(attempt.object, Pod):
        new = attempt.operation == "CREATE"
        return not subresource if new else subresource == "resize"
    return not subresource


def warnings(bounds: NamespaceLimits, obj: Object | None) -> list[str]:
    """Return warnings for a workload whose pods would be refused."""
    template = None if obj is None else template_of(obj)
    if obj is None or template is None:
        return []
    wanted = pod_from(template.spec, obj.metadata.namespace)
    return [
        f'{template.path}: pods will be refused by LimitRange "{each.limit_range}": {each.message}'
        for each in outcome(bounds, wanted).violations
    ]
