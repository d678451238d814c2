"""The common parts of workloads: selector, pod template, counters."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kedge.api import rules
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.pod.validation import validate_template
from kedge.api.core_v1.pod.warnings import warn_template
from kedge.api.label_selector import compiled, validate_label_selector
from kedge.api.model import LabelSelector, Object
from kedge.api.presentation import Column
from kedge.api.resource import enc_hook
from kedge.machinery import names
from kedge.machinery.errors import FieldError

UNMATCHED = "`selector` does not match template `labels`"
NONE = "<none>"


def validate_selector(selector: LabelSelector | None, kind: str) -> list[FieldError]:
    """Everything wrong with `spec.selector` of a kind that must have one."""
    path = "spec.selector"
    if selector is None:
        return [FieldError.required(path)]
    errors = list(validate_label_selector(selector, path))
    if is_empty(selector):
        why = f"empty selector is invalid for {kind}"
        errors.append(FieldError.invalid(path, selector, why))
    return errors


def is_empty(selector: LabelSelector) -> bool:
    return not selector.matchLabels and not selector.matchExpressions


def is_readable(selector: LabelSelector | None) -> bool:
    """Whether one can tell whom the selector selects."""
    return not any(validate_label_selector(selector, ""))


def selects(selector: LabelSelector | None, template: PodTemplateSpec) -> bool:
    """Whether pods from the template are the selector's; without a selector nothing is."""
    return compiled(selector).matches(template.metadata.labels)


def validate_pods(
    selector: LabelSelector | None, template: PodTemplateSpec, owner: str
) -> Iterator[FieldError]:
    """Everything wrong with `spec.template` of a kind whose pods run for ever."""
    path = "spec.template"
    if not selects(selector, template):
        labels = template.metadata.labels or None
        yield FieldError.invalid(f"{path}.metadata.labels", labels, UNMATCHED)
    yield from validate_template(template, path)
    yield from validate_lasting(template, owner)


def validate_lasting(template: PodTemplateSpec, owner: str) -> Iterator[FieldError]:
    """Pods that are to run for ever are always restarted and have no deadline."""
    path = "spec.template.spec"
    if template.spec.restartPolicy != "Always":
        policy = template.spec.restartPolicy
        yield FieldError.not_supported(f"{path}.restartPolicy", policy, ["Always"])
    if template.spec.activeDeadlineSeconds is not None:
        why = f"activeDeadlineSeconds in {owner} is not Supported"
        yield FieldError.forbidden(f"{path}.activeDeadlineSeconds", why)


def validate_counts(status: object, fields: Iterable[str]) -> Iterator[FieldError]:
    for field in fields:
        yield from rules.nonnegative(f"status.{field}", getattr(status, field))


def validate_parts(status: Any, fields: Iterable[str]) -> Iterator[FieldError]:
    """No part of the replicas outnumbers them all."""
    for field in fields:
        count: int = getattr(status, field)
        if count > status.replicas:
            why = "cannot be greater than status.replicas"
            yield FieldError.invalid(f"status.{field}", count, why)


def validate_collisions(new: int | None, old: int | None) -> Iterator[FieldError]:
    """The counter that makes names unique only rises."""
    if old is not None and (new is None or new < old):
        yield FieldError.invalid("status.collisionCount", new or 0, "cannot be decremented")


def same(new: object, old: object) -> bool:
    """Whether two values are the same on the wire."""
    return new == old or _wire(new) == _wire(old)


def unchanged(path: str, new: object, old: object) -> Iterator[FieldError]:
    """An update must leave this part as it was."""
    if not same(new, old):
        yield FieldError.invalid(path, new, rules.IMMUTABLE)


def _wire(value: object) -> bytes:
    # Defaulted values hold tuples where decoded ones hold lists; on the wire there is one sort. A
    # controller compares a template with all its revisions, so this must be fast for large ones.
    return msgspec.json.encode(value, enc_hook=enc_hook, order="sorted")


def warn_name(obj: Object) -> Iterator[str]:
    if found := names.dns_label(obj.metadata.name):
        yield (
            "metadata.name: this is used in Pod names and hostnames, which can result in "
            f"surprising behavior; a DNS label is recommended: [{' '.join(found)}]"
        )


def warn(obj: Any) -> Iterator[str]:
    """Sentences about a workload with `spec.template`."""
    yield from warn_name(obj)
    yield from warn_template(obj.spec.template, "spec.template")


def selector_cell(selector: LabelSelector | None) -> str:
    if not is_readable(selector):
        return "<error>"
    return str(compiled(selector)) or NONE


def template_columns(
    template: Callable[[Any], PodTemplateSpec],
    selector: Callable[[Any], LabelSelector | None] | None = None,
) -> Sequence[Column]:
    """The columns of `-o wide`: containers, images and the selector, if there is one."""
    columns = [
        Column(
            name="Containers",
            priority=1,
            description="Names of the containers.",
            cell=lambda obj: ",".join(each.name for each in template(obj).spec.containers),
        ),
        Column(
            name="Images",
            priority=1,
            description="Images of the containers.",
            cell=lambda obj: ",".join(each.image for each in template(obj).spec.containers),
        ),
    ]
    if selector is not None:
        columns.append(
            Column(
                name="Selector",
                priority=1,
                description="Labels by which the pods are known.",
                cell=lambda obj: selector_cell(selector(obj)),
            )
        )
    return columns
