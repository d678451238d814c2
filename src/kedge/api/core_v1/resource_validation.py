"""Rules for requests and limits, of a container or of a pod as a whole."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final

from kedge.api import rules
from kedge.api.core_v1 import resource_names
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.pod.container import ResourceClaim, ResourceRequirements
from kedge.api.core_v1.pod.resources import pod_level, total
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.machinery import names
from kedge.machinery.errors import ErrorScope, FieldError
from kedge.machinery.quantity import Quantity
from kedge.machinery.short_cache import short_cache

Amounts = Mapping[str, Quantity]
NameErrors = Callable[[str], Sequence[FieldError]]

_PLAIN: Final = frozenset(("cpu", "memory"))


def validate_container_resources(
    resources: ResourceRequirements, claims: Set[str] = frozenset()
) -> Iterator[FieldError]:
    """Everything wrong with what a container asks for, `claims` being those the pod has."""
    if resources.limits or resources.requests:
        yield from _requirements(resources, _container_name_errors)
    if resources.claims:
        yield from _claims(resources.claims, claims)


def validate_overhead(amounts: Amounts) -> Iterator[FieldError]:
    """Everything wrong with what a pod needs beyond its containers."""
    return _requirements(ResourceRequirements(limits=amounts), _name_errors)


def validate_pod_resources(spec: PodSpec, claims: Set[str]) -> Iterator[FieldError]:
    """Everything wrong with what a pod asks for as a whole."""
    resources = spec.resources
    if resources is None:
        return
    if spec.os is not None and spec.os.name == "windows":
        yield FieldError.forbidden("", "may not be set for a windows pod")
        return
    if resources.claims:
        yield FieldError.forbidden("claims", "claims may not be set for Resources at pod-level")
    yield from _requirements(resources, _pod_name_errors)
    yield from _claims(resources.claims, claims)
    yield from _requests_cover_containers(spec, resources)
    yield from _limits_cover_containers(spec, resources)


def _requirements(resources: ResourceRequirements, name_errors: NameErrors) -> Iterator[FieldError]:
    for name, amount in resources.limits.items():
        if name not in _PLAIN or amount.nanos < 0:
            yield from _amount(f"limits[{name}]", name, amount, name_errors)
    for name, amount in resources.requests.items():
        if name not in _PLAIN or amount.nanos < 0:
            yield from _amount(f"requests[{name}]", name, amount, name_errors)
        limit = resources.limits.get(name)
        if limit is not None or name not in _PLAIN:
            yield from _within_limit(name, amount, limit)
    asked = resources.limits.keys() | resources.requests.keys()
    if asked <= _PLAIN:
        return
    if any(map(resource_names.is_hugepages, asked)) and not asked & {"cpu", "memory"}:
        yield FieldError.forbidden("", "HugePages require cpu or memory")


def _amount(
    path: str, name: str, amount: Quantity, name_errors: NameErrors
) -> Iterator[FieldError]:
    yield from within(path, name_errors(name))
    yield from resource_names.validate_amount(name, amount, path)
    if resource_names.is_hugepages(name) and not _fills_pages(name, amount):
        why = f"{amount} is not positive integer multiple of {name}"
        yield FieldError.invalid(path, amount, why)


def _within_limit(name: str, amount: Quantity, limit: Quantity | None) -> Iterator[FieldError]:
    if name not in _PLAIN and not resource_names.may_overcommit(name):
        if limit is None:
            yield FieldError.required(
                "limits", "Limit must be set for non overcommitable resources"
            )
        elif amount != limit:
            why = f"must be equal to {name} limit of {limit}"
            yield FieldError.invalid("requests", amount, why)
    elif limit is not None and amount > limit:
        why = f"must be less than or equal to {name} limit of {limit}"
        yield FieldError.invalid("requests", amount, why)


def _fills_pages(name: str, amount: Quantity) -> bool:
    try:
        page = Quantity.parse(name.removeprefix(resource_names.HUGEPAGES_PREFIX))
    except ValueError:
        return False
    return page.nanos > 0 and page.milli() % 1000 == 0 and amount.value() % page.value() == 0


@short_cache(1024)
def _name_errors(name: str) -> Sequence[FieldError]:
    return tuple(rules.problems("", name, resource_names.container_name(name)))


@short_cache(1024)
def _container_name_errors(name: str) -> Sequence[FieldError]:
    if name != resource_names.STORAGE:
        return _name_errors(name)
    # Kedge takes it for ephemeral storage.
    return tuple(error.only(ErrorScope.EXTENSION) for error in _name_errors(name))


@short_cache(1024)
def _pod_name_errors(name: str) -> Sequence[FieldError]:
    if found := resource_names.any_name(name):
        return tuple(rules.problems("", name, found))
    if pod_level(name):
        return ()
    return (FieldError.not_supported("", name, ("cpu", "hugepages-", "memory")),)


def _claims(used: Sequence[ResourceClaim], available: Set[str]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, claim in enumerate(used):
        path = f"claims[{i}]"
        if not claim.name:
            yield FieldError.required(path)
            continue
        yield from _claim_once(path, claim, seen)
        if claim.name not in available:
            known = f": {', '.join(sorted(available))}" if available else " which is empty"
            error = FieldError.not_found(path, claim.name)
            why = f"must be one of the names in pod.spec.resourceClaims{known}"
            yield FieldError(error.reason, path, f"{error.body}: {why}")


def _claim_once(path: str, claim: ResourceClaim, seen: set[str]) -> Iterator[FieldError]:
    if claim.name in seen:
        yield FieldError.duplicate(path, claim.name)
        return
    key = claim.name
    if claim.request:
        found = names.dns_label(claim.request)
        yield from rules.problems(f"{path}.request", claim.request, found)
        key = f"{claim.name}/{claim.request}"
    if key in seen:
        yield FieldError.duplicate(path, key)
    elif not claim.request:
        for other in seen:
            if other.startswith(f"{claim.name}/"):
                yield FieldError.duplicate(path, claim.name)
    seen.add(key)


def _requests_cover_containers(
    spec: PodSpec, resources: ResourceRequirements
) -> Iterator[FieldError]:
    for name, together in total(spec, "requests").items():
        own = resources.requests.get(name)
        if own is not None and together > own:
            why = f"must be greater than or equal to aggregate container requests of {together}"
            yield FieldError.invalid(f"requests[{name}]", own, why)


def _limits_cover_containers(
    spec: PodSpec, resources: ResourceRequirements
) -> Iterator[FieldError]:
    for name, together in total(spec, "limits").items():
        own = resources.limits.get(name)
        if resource_names.is_hugepages(name) and own is not None and together > own:
            why = f"must be greater than or equal to aggregate container limits of {together}"
            yield FieldError.invalid(f"limits[{name}]", own, why)
    for i, container in enumerate(spec.containers):
        for name, limit in container.resources.limits.items():
            own = resources.limits.get(name)
            if own is not None and limit > own:
                why = f"must be less than or equal to pod limits of {own}"
                yield FieldError.invalid(f"containers[{i}][{name}].limits", limit, why)
