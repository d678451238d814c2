"""Validation of ServiceCIDR and IPAddress."""

from kedge.api import rules
from kedge.api.builtin.content import listed, reach, text
from kedge.api.builtin.validation import Errors, named
from kedge.api.internal_forms import internal_form
from kedge.api.model import Document
from kedge.machinery import names
from kedge.machinery.errors import FieldError


def service_cidr(obj: Document) -> Errors:
    path, cidrs = "spec.cidrs", listed(obj.content, "spec.cidrs")
    if not cidrs:
        yield FieldError.required(path, "at least one CIDR required")
    elif len(cidrs) > 2:
        yield FieldError.invalid(path, {"CIDRs": cidrs}, "may only hold up to 2 values")
    else:
        for i, cidr in enumerate(cidrs):
            yield from rules.problems(f"{path}[{i}]", cidr, names.canonical_cidr(cidr))
        if len(cidrs) == 2 and (":" in cidrs[0]) == (":" in cidrs[1]):
            why = (
                "may specify no more than one IP for each IP family, "
                "i.e 192.168.0.0/24 and 2001:db8::/64"
            )
            yield FieldError.invalid(path, cidrs, why)


def service_cidr_update(new: Document, old: Document) -> Errors:
    """A second network may be added, of the other family; nothing else may change."""
    path = "spec.cidrs"
    now, before = listed(new.content, path), listed(old.content, path)
    if len(now) == len(before):
        for i, (cidr, known) in enumerate(zip(now, before, strict=True)):
            yield from rules.unchanged(f"{path}[{i}]", cidr, known)
    elif len(before) == 1 and len(now) == 2:
        yield from rules.unchanged(f"{path}[0]", now[0], before[0])
        yield from service_cidr(new)
    else:
        yield from rules.unchanged(path, reach(new.content, path), before)


def ip_address(obj: Document) -> Errors:
    parent = reach(obj.content, "spec.parentRef")
    if not parent:
        yield FieldError.required("spec.parentRef")
        return
    path = "spec.parentRef"
    if group := text(parent, "group"):
        yield from rules.problems(f"{path}.group", group, names.dns_subdomain(group))
    yield from named(f"{path}.resource", text(parent, "resource"), names.path_segment)
    yield from named(f"{path}.name", text(parent, "name"), names.path_segment)
    if namespace := text(parent, "namespace"):
        yield from rules.problems(f"{path}.namespace", namespace, names.path_segment(namespace))


def ip_address_update(new: Document, old: Document) -> Errors:
    path = "spec.parentRef"
    now, before = reach(new.content, path), reach(old.content, path)
    if now != before:
        shown = internal_form(now, "*networking.ParentReference")
        yield FieldError.invalid(path, shown, rules.IMMUTABLE)
