"""The decisions about writes: pure functions of the review and the LimitRanges of its namespace."""

import copy
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kedge.admission_webhook import downward, limit_ranges
from kedge.admission_webhook.review import ALLOWED, ReviewRequest, Verdict
from kedge.api.core_v1 import limit_range, persistent_volume_claim
from kedge.api.core_v1 import pod as pods
from kedge.api.core_v1.limit_range import LimitRange
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.limits import workloads
from kedge.api.limits.bounds import NamespaceLimits
from kedge.api.limits.defaulting import with_more_defaults
from kedge.api.limits.violations import claim_violations, concerns, pod_violations, refusal
from kedge.api.limits.workloads import template_of
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver.admission.limit_ranger import warnings
from kedge.apiserver.body import check_depth
from kedge.machinery.errors import FieldError, bad_request, forbidden, invalid

_PODS: Final = pods.pod.RESOURCE
_RESOURCES: Final = {
    (each.group, each.version, each.plural): each
    for each in (
        _PODS,
        persistent_volume_claim.RESOURCE,
        limit_ranges.RESOURCE,
        *workloads.RESOURCES,
    )
}
"""The kinds that the webhook has something to say about."""
_LIMITED: Final = (_PODS, persistent_volume_claim.RESOURCE)
"""The kinds whose objects LimitRanges refuse."""
_WRITES: Final = ("CREATE", "UPDATE")

Document = dict[str, Any]


class _Subject(NamedTuple):
    """A write, decoded."""

    request: ReviewRequest
    resource: Resource[Any]
    document: Document
    object: Object
    old: Object | None

    @property
    def is_under_limits(self) -> bool:
        request = self.request
        return concerns(request.operation, request.sub_resource, self.object, self.old)

    @property
    def is_new_pod(self) -> bool:
        request = self.request
        is_pod = self.resource is _PODS and not request.sub_resource
        return is_pod and request.operation == "CREATE"

    def invalid(self, errors: Sequence[FieldError]) -> Verdict:
        resource = self.resource
        return Verdict(invalid(resource.group, resource.kind, self.name, errors))

    @property
    def name(self) -> str:
        return self.object.metadata.name or self.request.name or "Unknown"


def is_limited(request: ReviewRequest) -> bool:
    """Return whether LimitRanges can refuse the object under review."""
    return _resource(request) in _LIMITED


def mutate(request: ReviewRequest, bounds: NamespaceLimits | None) -> Verdict:
    """Return defaults for containers, and selectors in words of a stock kubelet."""
    subject = _subject(request)
    if subject is None:
        return ALLOWED
    document = copy.deepcopy(subject.document)
    if subject.resource is _PODS:
        return _changed_pod(subject, document, bounds)
    template = template_of(subject.object)
    if template is None or request.sub_resource:
        return ALLOWED
    spec = _at(document, f"{template.path}.spec")
    errors = downward.complete(spec, f"{template.path}.spec")
    if not errors:
        completed = template_of(subject.resource.from_document(document)) or template
        errors = downward.problems(completed.spec.spec, f"{template.path}.spec")
        if not errors:
            errors = downward.translate(spec, completed.spec.spec, f"{template.path}.spec")
    return subject.invalid(errors) if errors else Verdict(changed=document)


def _changed_pod(subject: _Subject, document: Document, bounds: NamespaceLimits | None) -> Verdict:
    spec: Document = document.get("spec") or {}
    written = downward.written(spec, "spec")
    errors = downward.complete(spec, "spec") if subject.is_new_pod else []
    if errors:
        return subject.invalid(errors)
    pod: Pod = _PODS.from_document(document)
    if bounds and subject.is_under_limits:
        pod = with_more_defaults(bounds, pod)
        _write_amounts(document, pod)
    if subject.is_new_pod:
        errors = downward.problems(pod.spec, "spec") or downward.translate(spec, pod.spec, "spec")
        if not errors:
            found, errors = downward.annotations(spec, pod, "spec", written)
            _annotate(document, found)
    return subject.invalid(errors) if errors else Verdict(changed=document)


def _write_amounts(document: Document, pod: Pod) -> None:
    """Write the requests and limits that containers were given into the document."""
    for group in ("containers", "initContainers"):
        typed = getattr(pod.spec, group)
        raw = (document.get("spec") or {}).get(group) or ()
        for container, filled in zip(raw, typed, strict=True):
            for bound in ("requests", "limits"):
                amounts = getattr(filled.resources, bound)
                known = (container.get("resources") or {}).get(bound) or {}
                if missing := {name: str(amounts[name]) for name in amounts if name not in known}:
                    resources = container["resources"] = container.get("resources") or {}
                    resources[bound] = known | missing
    _annotate(document, pod.metadata.annotations)


def _annotate(document: Document, annotations: Any) -> None:
    if annotations:
        metadata = document["metadata"] = document.get("metadata") or {}
        metadata["annotations"] = (metadata.get("annotations") or {}) | annotations


def validate(request: ReviewRequest, bounds: NamespaceLimits | None) -> Verdict:
    """Refuse what violates LimitRanges, and invalid LimitRanges."""
    subject = _subject(request)
    if subject is None:
        return ALLOWED
    obj = subject.object
    if isinstance(obj, LimitRange):
        errors = limit_ranges.problems(limit_range.default(obj))
        return subject.invalid(errors) if errors else ALLOWED
    if not bounds or not subject.is_under_limits:
        return ALLOWED
    if isinstance(obj, Pod):
        violations = pod_violations(bounds, obj)
    elif isinstance(obj, PersistentVolumeClaim):
        violations = claim_violations(bounds, obj)
    else:
        return Verdict(warnings=warnings(bounds, obj))
    if not violations:
        return ALLOWED
    resource = subject.resource
    return Verdict(forbidden(resource.group, resource.plural, subject.name, refusal(violations)))


def _subject(request: ReviewRequest) -> _Subject | None:
    """Decode a write; None if the webhook has nothing to say about it."""
    resource = _resource(request)
    if resource is None or request.object is None or request.operation not in _WRITES:
        return None
    if request.sub_resource and (resource is not _PODS or request.sub_resource != "resize"):
        return None
    obj = _decoded(resource, request.object)
    old = _decoded(resource, request.old_object) if request.old_object else None
    return _Subject(request, resource, request.object, obj, old)


def _resource(request: ReviewRequest) -> Resource[Any] | None:
    about = request.resource
    return _RESOURCES.get((about.group, about.version, about.resource))


def _decoded(resource: Resource[Any], document: Document) -> Object:
    check_depth(document)
    try:
        obj: Object = resource.from_document(document)
    except (msgspec.ValidationError, ValueError) as error:
        raise bad_request(f"the object is not a {resource.kind}: {error}") from error
    return obj


def _at(document: Document, path: str) -> Document:
    for name in path.split("."):
        document = document.get(name) or {}
    return document
