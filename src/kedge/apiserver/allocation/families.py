"""The IP families of a Service in a cluster that gives out IPv4 addresses only."""

from collections.abc import Iterator, Sequence
from typing import Final

from kedge.api.builtin.service_networks import family_of
from kedge.api.core_v1.service_types import ServiceSpec
from kedge.api.core_v1.service_validation import is_headless
from kedge.machinery.errors import FieldError

CLUSTER_FAMILIES: Final = ("IPv4",)
_POLICY: Final = "spec.ipFamilyPolicy"


def family_errors(spec: ServiceSpec, old: ServiceSpec | None = None) -> list[FieldError]:
    """Return what is wrong with the families of a Service, in upstream's order.

    The first group of errors hides the second, which judges the families that the first left.
    """
    if spec.type == "ExternalName":
        return []
    errors = [*_policy_errors(spec, old), *_inferred_errors(spec)]
    if errors or (is_headless(spec) and not spec.selector):
        return errors
    return list(_cluster_errors(spec))


def _policy_errors(spec: ServiceSpec, old: ServiceSpec | None) -> Iterator[FieldError]:
    if spec.ipFamilyPolicy != "SingleStack" and old is not None:
        if _is_reduced(spec.clusterIPs, old.clusterIPs):
            why = "must be 'SingleStack' to release the secondary cluster IP"
            yield FieldError.invalid(_POLICY, spec.ipFamilyPolicy, why)
        if _is_reduced(spec.ipFamilies, old.ipFamilies):
            why = "must be 'SingleStack' to release the secondary IP family"
            yield FieldError.invalid(_POLICY, spec.ipFamilyPolicy, why)
    if (spec.ipFamilyPolicy or "SingleStack") == "SingleStack" and not _is_anywhere(spec):
        for values, what in ((spec.clusterIPs, "cluster IPs"), (spec.ipFamilies, "IP families")):
            if len(values) == 2:
                why = (
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple"
                    f" {what} are specified"
                )
                yield FieldError.invalid(_POLICY, spec.ipFamilyPolicy or "SingleStack", why)


def _is_anywhere(spec: ServiceSpec) -> bool:
    """Return whether the default policy is another one: headless and without selector."""
    return spec.ipFamilyPolicy is None and is_headless(spec) and not spec.selector


def _is_reduced(new: Sequence[str], old: Sequence[str]) -> bool:
    return 0 < len(new) < len(old) and list(new) == list(old[: len(new)])


def _inferred_errors(spec: ServiceSpec) -> Iterator[FieldError]:
    """Judge the families of addresses that have no entry in ipFamilies."""
    for i, address in enumerate(spec.clusterIPs):
        family = family_of(address)
        if address != "None" and i >= len(spec.ipFamilies) and family not in CLUSTER_FAMILIES:
            why = f"{family} is not configured on this cluster"
            yield FieldError.invalid(f"spec.clusterIPs[{i}]", spec.clusterIPs, why)


def _cluster_errors(spec: ServiceSpec) -> Iterator[FieldError]:
    if spec.ipFamilyPolicy == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        yield FieldError.invalid(_POLICY, spec.ipFamilyPolicy, why)
    for i, family in enumerate(spec.ipFamilies):
        if family not in CLUSTER_FAMILIES:
            why = "not configured on this cluster"
            yield FieldError.invalid(f"spec.ipFamilies[{i}]", family, why)
