"""LimitRanger: applies the defaults and limits of a namespace to pods and claims.

It does not refuse workloads. It warns if their pods would be refused, and if a LimitRange would
refuse pods that already run.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from kedge.api.core_v1.limit_range import RESOURCE, LimitRange
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.limits.bounds import NamespaceLimits, bounds_of
from kedge.api.limits.defaulting import with_defaults, with_more_defaults
from kedge.api.limits.running_pods import RunningPodViolations, running_violations
from kedge.api.limits.violations import claim_violations, concerns, pod_violations, refusal
from kedge.api.limits.workloads import outcome, pod_from, template_of
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.authorization.cache_follower import follow, place_of
from kedge.apiserver.watchcache import Item, ResourceCache, Selection
from kedge.machinery.selectors import FieldSelector, LabelRequirements

EXAMINED_PODS: Final = 200
"""How many pods a new LimitRange is compared with. Decoding so many takes about 20 ms."""
EXAMINED_BYTES: Final = 1 << 20
"""How large these pods may be together."""
NAMED_PODS: Final = 5
"""How many of those that would be refused the warnings name."""


class LimitRanger:
    """Gives pods the defaults of the LimitRanges of their namespace and enforces their bounds on
    pods and claims; warns about workloads whose pods would be refused."""

    name = "LimitRanger"

    def __init__(self, ranges: ResourceCache, pods: ResourceCache) -> None:
        self._pods = pods
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
        obj = attempt.object
        if not isinstance(obj, Pod):
            return obj
        bounds = self.bounds(attempt.request.namespace)
        if bounds is None or not _concerns(attempt):
            return obj
        if attempt.is_repeated:
            return with_more_defaults(bounds, obj)
        return with_defaults(bounds, obj)

    async def validate(self, attempt: Attempt) -> None:
        if isinstance(attempt.object, LimitRange):
            attempt.request.warnings += self._refused_pods(attempt, attempt.object)
            return
        bounds = self.bounds(attempt.request.namespace)
        if bounds is None or not _concerns(attempt):
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

    def _refused_pods(self, attempt: Attempt, written: LimitRange) -> list[str]:
        """Return warnings about the pods of the namespace that a LimitRange would refuse."""
        if not _concerns(attempt) or not written.spec.limits:
            return []
        namespace = attempt.request.namespace
        everything = Selection(pod.RESOURCE, namespace, LabelRequirements(), FieldSelector())
        running = (pod.RESOURCE.decode(item.body) for item in _first(self._pods.select(everything)))
        return list(running_warnings(running_violations(bounds_of([written]), running)))


def _first(items: Iterable[Item]) -> Iterator[Item]:
    """Yield as many pods as may be decoded in one turn of the event loop."""
    size = 0
    for item in islice(items, EXAMINED_PODS):
        size += len(item.body)
        if size > EXAMINED_BYTES:
            return
        yield item


def running_warnings(found: Iterable[RunningPodViolations]) -> Iterator[str]:
    """Yield a warning for each of the first pods, and one for the number of the others."""
    refused_pods = iter(found)
    for each in islice(refused_pods, NAMED_PODS):
        yield f'running pod "{each.pod}" would be refused: {refusal(each.violations)}'
    if others := sum(1 for _ in refused_pods):
        yield f"{others} more running pods would be refused: see kedge explain limits --existing"


def _concerns(attempt: Attempt) -> bool:
    subresource = attempt.request.subresource
    return concerns(attempt.operation, subresource, attempt.object, attempt.old)


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
