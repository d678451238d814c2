"""The table of meters, by resource."""

from collections.abc import Collection
from functools import lru_cache

from kedge.api.quota.claims import ClaimQuotaMeter
from kedge.api.quota.count import CountQuotaMeter
from kedge.api.quota.extended_names import ExtendedNames, shared_names
from kedge.api.quota.measure import QuotaMeter
from kedge.api.quota.pods import PodQuotaMeter
from kedge.api.quota.resource_claims import ResourceClaimQuotaMeter
from kedge.api.quota.services import ServiceQuotaMeter

Kind = tuple[str, str]
"""A resource by group and plural: quotas do not care for versions."""

_COUNT_PREFIX = "count/"
_WITH_NAMES_OF_THEIR_OWN = ("configmaps", "replicationcontrollers", "resourcequotas", "secrets")
"""Resources that quotas could count before they could count everything."""

PODS: Kind = ("", "pods")
RESOURCE_CLAIMS: Kind = ("resource.k8s.io", "resourceclaims")

METERS: dict[Kind, QuotaMeter] = {
    PODS: PodQuotaMeter(),
    ("", "services"): ServiceQuotaMeter(),
    ("", "persistentvolumeclaims"): ClaimQuotaMeter(),
    RESOURCE_CLAIMS: ResourceClaimQuotaMeter(),
    **{("", plural): CountQuotaMeter("", plural, plural) for plural in _WITH_NAMES_OF_THEIR_OWN},
}
"""The meters of resources that have more names in quotas than count/."""

IGNORED: frozenset[Kind] = frozenset(
    (
        ("", "bindings"),
        ("", "componentstatuses"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    )
)
"""Resources that no quota counts."""


@lru_cache(maxsize=1024)
def meter_of(kind: Kind) -> QuotaMeter | None:
    """The meter of a resource, custom ones included; None if no quota counts it."""
    if kind in IGNORED:
        return None
    return METERS.get(kind) or CountQuotaMeter(*kind)


def kinds_of(hard: Collection[str], extended: ExtendedNames) -> set[Kind]:
    """The resources whose objects a quota with these names counts."""
    kinds = {PODS, RESOURCE_CLAIMS} if shared_names(hard, extended) else set()
    kinds |= {kind for kind, meter in METERS.items() if meter.names(hard)}
    for name in hard:
        if name.startswith(_COUNT_PREFIX):
            plural, _, group = name.removeprefix(_COUNT_PREFIX).partition(".")
            kinds.add((group, plural))
    return kinds - IGNORED
