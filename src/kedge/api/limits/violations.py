"""Every constraint of LimitRanges that a pod or a claim violates, in a fixed order.

The order is that of the LimitRanges' names, then of their items, then of the containers, then
minimum, maximum and ratio, each by the name of the resource. All comparisons are exact.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kedge.api.core_v1.limit_range import CLAIM, CONTAINER, POD
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import POD_LEVEL, Bound, total
from kedge.api.limits.bounds import Amounts, LimitRangeRule, NamespaceLimits, NarrowestBounds
from kedge.api.model import Object
from kedge.machinery.quantity import Quantity, times

_UNIT = Quantity.from_value(1).nanos
_WRITES: Final = ("CREATE", "UPDATE")


def concerns(operation: str, subresource: str, obj: Object | None, old: Object | None) -> bool:
    """Return whether a write is one that LimitRanges have a say in."""
    if operation not in _WRITES:
        return False
    if old is not None and old.metadata.deletionTimestamp:
        return False
    if isinstance(obj, Pod):
        return not subresource if operation == "CREATE" else subresource == "resize"
    return not subresource


class LimitRangeViolation(NamedTuple):
    """One violated constraint."""

    limit_range: str
    """The name of the LimitRange that sets it."""
    message: str

    def __str__(self) -> str:
        return f'{self.message} (LimitRange "{self.limit_range}")'


class ResourceDemand(NamedTuple):
    """The requests and limits of a pod, a container or a claim."""

    requests: Amounts
    limits: Amounts


def pod_violations(bounds: NamespaceLimits, pod: Pod) -> list[LimitRangeViolation]:
    """Return all violations of a pod."""
    return [] if _keeps_within(bounds, pod) else list(dict.fromkeys(_pod_violations(bounds, pod)))


def _pod_violations(bounds: NamespaceLimits, pod: Pod) -> Iterator[LimitRangeViolation]:
    whole = asked_together(pod)
    containers = (*pod.spec.containers, *pod.spec.initContainers)
    for rule in bounds.rules:
        if rule.type == CONTAINER and rule.covers(pod):
            for container in containers:
                if rule.covers_container(container.name):
                    resources = container.resources
                    yield from _broken(rule, ResourceDemand(resources.requests, resources.limits))
        elif rule.type == POD and rule.covers(pod):
            yield from _broken(rule, whole)


def claim_violations(
    bounds: NamespaceLimits, claim: PersistentVolumeClaim
) -> list[LimitRangeViolation]:
    """Return all violations of a claim."""
    asked = ResourceDemand(claim.spec.resources.requests, {})
    rules = (rule for rule in bounds.of_type(CLAIM) if rule.covers(claim))
    found = (each for rule in rules for each in _broken_by_claim(rule, asked))
    return list(dict.fromkeys(found))


def refusal(violations: Iterable[LimitRangeViolation]) -> str:
    """Return the violations as one text: each message once, in brackets if there are several."""
    messages = list(dict.fromkeys(each.message for each in violations))
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"


def asked_together(pod: Pod) -> ResourceDemand:
    """Return the requests and limits of a pod: its own, or the sum of its containers."""
    return ResourceDemand(_together(pod, "requests"), _together(pod, "limits"))


def _together(pod: Pod, bound: Bound) -> Amounts:
    amounts = total(pod.spec, bound)
    if pod.spec.resources is not None:
        own: Amounts = getattr(pod.spec.resources, bound)
        amounts |= {name: own[name] for name in POD_LEVEL if name in own}
    return amounts


# Whether anything is wrong: asked of every pod, so it is quick and says no more.


def _keeps_within(bounds: NamespaceLimits, pod: Pod) -> bool:
    """Whether a pod keeps within the narrowest of all bounds, and so within each of them."""
    spec = pod.spec
    containers = [container.resources for container in (*spec.containers, *spec.initContainers)]
    for bound in bounds.containers:
        resource = bound.resource
        for each in containers:
            request = each.requests[resource].nanos if resource in each.requests else None
            limit = each.limits[resource].nanos if resource in each.limits else None
            if not _within(bound, request, limit):
                return False
    if not bounds.pods:
        return True
    requests = [each.requests for each in containers]
    limits = [each.limits for each in containers]
    if spec.initContainers or spec.resources is not None:
        requests, limits = ([amounts] for amounts in asked_together(pod))
    return all(
        _within(bound, _sum(requests, bound.resource), _sum(limits, bound.resource))
        for bound in bounds.pods
    )


def _sum(parts: Iterable[Amounts], resource: str) -> int | None:
    """Return the sum of the parts in nanos; None if no part sets the resource."""
    amounts = [part[resource].nanos for part in parts if resource in part]
    return sum(amounts) if amounts else None


def _within(bound: NarrowestBounds, request: int | None, limit: int | None) -> bool:
    _, least, most, ratio = bound
    if least is not None and (
        request is None or request < least or (limit is not None and limit < least)
    ):
        return False
    if most is not None and (
        limit is None or limit > most or (request is not None and request > most)
    ):
        return False
    if ratio is None:
        return True
    return bool(request and limit and limit * _UNIT <= ratio * request)


# Comparisons and messages.


def _exceeds(limit: Quantity, request: Quantity, ratio: Quantity) -> bool:
    # Multiplied out, so that no rounding decides.
    return limit.nanos * _UNIT > ratio.nanos * request.nanos


def _broken(rule: LimitRangeRule, asked: ResourceDemand) -> Iterator[LimitRangeViolation]:
    for name, least in rule.least.items():
        request, limit = asked.requests.get(name), asked.limits.get(name)
        yield from _told(rule, _too_little(name, least, request, limit, rule.type))
    for name, most in rule.most.items():
        request, limit = asked.requests.get(name), asked.limits.get(name)
        yield from _told(rule, _too_much(name, most, request, limit, rule.type))
    for name, ratio in rule.ratio.items():
        request, limit = asked.requests.get(name), asked.limits.get(name)
        yield from _told(rule, _too_far_apart(name, ratio, request, limit, rule.type))


def _broken_by_claim(rule: LimitRangeRule, asked: ResourceDemand) -> Iterator[LimitRangeViolation]:
    """As of a pod, but that claims have no limits."""
    for name, least in rule.least.items():
        request = asked.requests.get(name)
        yield from _told(rule, _too_little(name, least, request, None, rule.type))
    for name, most in rule.most.items():
        request = asked.requests.get(name)
        usage = f"maximum {name} usage per {rule.type} is {most}"
        if request is None:
            yield LimitRangeViolation(rule.limit_range, f"{usage}.  No request is specified")
        elif request > most:
            yield LimitRangeViolation(rule.limit_range, f"{usage}, but request is {request}")


def _told(rule: LimitRangeRule, message: str) -> Iterator[LimitRangeViolation]:
    if message:
        yield LimitRangeViolation(rule.limit_range, message)


def _too_little(
    name: str, least: Quantity, request: Quantity | None, limit: Quantity | None, type_: str
) -> str:
    usage = f"minimum {name} usage per {type_} is {least}"
    if request is None:
        return f"{usage}.  No request is specified"
    if request < least:
        return f"{usage}, but request is {request}"
    if limit is not None and limit < least:
        return f"{usage}, but limit is {limit}"
    return ""


def _too_much(
    name: str, most: Quantity, request: Quantity | None, limit: Quantity | None, type_: str
) -> str:
    usage = f"maximum {name} usage per {type_} is {most}"
    if limit is None:
        return f"{usage}.  No limit is specified"
    if limit > most:
        return f"{usage}, but limit is {limit}"
    if request is not None and request > most:
        return f"{usage}, but request is {request}"
    return ""


def _too_far_apart(
    name: str, ratio: Quantity, request: Quantity | None, limit: Quantity | None, type_: str
) -> str:
    allowed = f"{name} max limit to request ratio per {type_} is {ratio}"
    if not request:
        return f"{allowed}, but no request is specified or request is 0"
    if not limit:
        return f"{allowed}, but no limit is specified or limit is 0"
    if _exceeds(limit, request, ratio):
        return f"{allowed}, but provided ratio is {times(limit, request)}"
    return ""
