"""ResourceQuota: how much all objects of one namespace may use together."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1 import resource_names
from kedge.api.core_v1.resource_defaults import rounded
from kedge.api.model import Model, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity

TERMINATING = "Terminating"
NOT_TERMINATING = "NotTerminating"
BEST_EFFORT = "BestEffort"
NOT_BEST_EFFORT = "NotBestEffort"
PRIORITY_CLASS = "PriorityClass"
CROSS_NAMESPACE = "CrossNamespacePodAffinity"
ATTRIBUTES_CLASS = "VolumeAttributesClass"

_OPPOSITES = ((BEST_EFFORT, NOT_BEST_EFFORT), (TERMINATING, NOT_TERMINATING))
_WITHOUT_VALUES = (*_OPPOSITES[0], *_OPPOSITES[1], CROSS_NAMESPACE)
_SCOPES = (*_WITHOUT_VALUES, PRIORITY_CLASS, ATTRIBUTES_CLASS)
_POD_AMOUNTS = frozenset(
    (
        "pods",
        *(
            f"{prefix}{name}"
            for prefix in ("", "requests.", "limits.")
            for name in ("cpu", "memory")
        ),
    )
)
_CLAIM_AMOUNTS = frozenset(("persistentvolumeclaims", "requests.storage"))
_ZERO = Quantity.from_value(0)


class ScopedResourceSelectorRequirement(Model):
    """One condition on the objects that a quota counts."""

    __required__ = ("scopeName", "operator")

    operator: str = ""
    """In, NotIn, Exists or DoesNotExist."""
    scopeName: str = ""
    """The scope that the condition is about."""
    values: Sequence[str] = ()
    """The values that In and NotIn compare with."""


class ScopeSelector(Model):
    """Selects the objects that a quota counts; all conditions must hold."""

    __atomic__ = True

    matchExpressions: Sequence[ScopedResourceSelectorRequirement] = ()
    """The conditions."""


class ResourceQuotaSpec(Model):
    """The bounds, and what they count."""

    hard: Mapping[str, Quantity] = {}
    """Most that may be used, by name of the resource."""
    scopeSelector: ScopeSelector | None = None
    """Conditions on the objects that are counted."""
    scopes: Sequence[str] = ()
    """Scopes that an object must be in to be counted. Cannot be changed."""


class ResourceQuotaStatus(Model):
    """The bounds in force, and what is used of them."""

    hard: Mapping[str, Quantity] = {}
    """Most that may be used."""
    used: Mapping[str, Quantity] = {}
    """The used amounts."""


class ResourceQuota(Object):
    """How much all objects of one namespace may use together."""

    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)
    """The desired state."""
    status: ResourceQuotaStatus = field(default_factory=ResourceQuotaStatus)
    """The observed state."""


def default(obj: ResourceQuota) -> ResourceQuota:
    spec = replace(obj.spec, hard=rounded(obj.spec.hard))
    status = replace(obj.status, hard=rounded(obj.status.hard), used=rounded(obj.status.used))
    return replace(obj, spec=spec, status=status)


def validate(obj: ResourceQuota) -> Iterator[FieldError]:
    yield from _amounts(obj.spec.hard, "spec.hard")
    yield from _scopes(obj.spec)
    if obj.spec.scopeSelector is not None:
        yield from _scope_selector(obj.spec, obj.spec.scopeSelector)


def _amounts(amounts: Mapping[str, Quantity], path: str) -> Iterator[FieldError]:
    for name, amount in amounts.items():
        at = f"{path}[{name}]"
        yield from rules.problems(at, name, resource_names.quota_name(name))
        yield from resource_names.validate_amount(name, amount, at)


def _scopes(spec: ResourceQuotaSpec) -> Iterator[FieldError]:
    path = "spec.scopes"
    for scope in spec.scopes:
        if scope not in _SCOPES:
            yield FieldError.invalid(path, spec.scopes, "unsupported scope")
        for _ in _not_countable(scope, spec.hard):
            yield FieldError.invalid(path, spec.scopes, "unsupported scope applied to resource")
    yield from _conflicts(spec.scopes, path, spec)


def _not_countable(scope: str, hard: Mapping[str, Quantity]) -> Iterator[str]:
    """The amounts that the objects in a scope do not have."""
    if scope == BEST_EFFORT:
        countable = frozenset((resource_names.PODS,))
    elif scope == ATTRIBUTES_CLASS:
        countable = _CLAIM_AMOUNTS
    elif scope in _SCOPES:
        countable = _POD_AMOUNTS
    else:
        return
    for name in sorted(hard):
        if resource_names.is_for_quota(name) and name not in countable:
            yield name


def _conflicts(scopes: Sequence[str], path: str, spec: ResourceQuotaSpec) -> Iterator[FieldError]:
    for one, other in _OPPOSITES:
        if one in scopes and other in scopes:
            yield FieldError.invalid(path, spec.scopes, "conflicting scopes")


def _scope_selector(spec: ResourceQuotaSpec, selector: ScopeSelector) -> Iterator[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    for requirement in selector.matchExpressions:
        if requirement.scopeName not in _SCOPES:
            why = "unsupported scope"
            yield FieldError.invalid(f"{path}.scopeName", requirement.scopeName, why)
        for _ in _not_countable(requirement.scopeName, spec.hard):
            yield FieldError.invalid(path, selector, "unsupported scope applied to resource")
        yield from _operator(requirement, path)
    names = [requirement.scopeName for requirement in selector.matchExpressions]
    yield from _conflicts(names, path, spec)


def _operator(requirement: ScopedResourceSelectorRequirement, path: str) -> Iterator[FieldError]:
    operator, values = requirement.operator, requirement.values
    if requirement.scopeName in _WITHOUT_VALUES and operator != "Exists":
        why = (
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
            "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
            "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
        )
        yield FieldError.invalid(f"{path}.operator", operator, why)
    if operator in ("In", "NotIn"):
        if not values:
            why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield FieldError.required(f"{path}.values", why)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield FieldError.invalid(f"{path}.values", values, why)
    else:
        yield FieldError.invalid(f"{path}.operator", operator, "not a valid selector operator")


def validate_update(new: ResourceQuota, old: ResourceQuota) -> Iterator[FieldError]:
    if set(new.spec.scopes) != set(old.spec.scopes):
        yield FieldError.invalid("spec.scopes", new.spec.scopes, rules.IMMUTABLE)


def validate_status(new: ResourceQuota, old: ResourceQuota) -> Iterator[FieldError]:
    yield from _amounts(new.status.hard, "status.hard")
    yield from _amounts(new.status.used, "status.used")


def usage_cell(obj: ResourceQuota, *, limits: bool) -> str:
    """The used amount of each bound: of the limits, or of the others."""
    used, hard = obj.status.used, obj.status.hard
    shown = (
        f"{name}: {used.get(name, _ZERO)}/{hard[name]}"
        for name in sorted(hard)
        if name.startswith("limits.") is limits
    )
    return ", ".join(shown)


RESOURCE: Resource[ResourceQuota] = Resource(
    type=ResourceQuota,
    plural="resourcequotas",
    subresources=[STATUS],
    strategy=Strategy(
        counts_generation=False,
        returns_deleted_object=True,
        default=default,
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
    ),
    presentation=Presentation(
        short_names=["quota"],
        columns=[
            name_column(),
            Column(
                name="Request",
                cell=lambda obj: usage_cell(obj, limits=False),
                description="What is used and allowed, limits apart.",
            ),
            Column(
                name="Limit",
                cell=lambda obj: usage_cell(obj, limits=True),
                description="The sum of limits that is used and allowed.",
            ),
            age_column(),
        ],
    ),
)
