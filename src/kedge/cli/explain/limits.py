"""`kedge explain limits`: shows where requests and limits come from, and why they are refused."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kedge.api.core_v1 import limit_range, persistent_volume_claim
from kedge.api.core_v1.limit_range import LimitRange
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.limits.bounds import Bound, NamespaceLimits, bounds_of
from kedge.api.limits.defaulting import DefaultedAmount
from kedge.api.limits.running_pods import running_violations
from kedge.api.limits.violations import LimitRangeViolation, asked_together, claim_violations
from kedge.api.limits.workloads import RESOURCES, outcome, pod_from, template_of
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver.verbs.unreadable_document import unreadable
from kedge.cli.failure import Failure, ServerRefusal
from kedge.cli.objects.complaints import complaint
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.manifests import Manifest
from kedge.cli.output import printers
from kedge.client.client import path_of
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Quantity
from kedge.machinery.shape import AsMapping, TypeMismatch, fit

Amounts = Mapping[str, Quantity]

HEAD = ("CONTAINER", "RESOURCE", "REQUEST", "FROM", "LIMIT", "FROM")
EXISTING_HEAD = ("POD", "LIMITRANGE", "VIOLATION")
NOTHING = "-"
MANIFEST = "manifest"
COPIED = "copied from limit"
SERVER = "set by the server"
SUM = "sum of containers"
POD_ROW = "(pod)"

_KINDS: dict[tuple[str, str], Resource[Any]] = {
    (resource.api_version, resource.kind): resource
    for resource in (pod.RESOURCE, persistent_volume_claim.RESOURCE, *RESOURCES)
}


class LimitsExplanation(NamedTuple):
    """The effect of LimitRanges on one manifest."""

    rows: Sequence[tuple[str, ...]]
    violations: Sequence[LimitRangeViolation]


async def explain_existing(connection: ApiSession, written: Sequence[Manifest]) -> int:
    """Print the running pods that LimitRanges would refuse; 1 if there are any.

    LimitRanges from files take the place of those in the namespace with the same name.
    """
    namespace = connection.namespace
    ranges = {
        each.metadata.name: each
        for each in (await connection.client.list(limit_range.RESOURCE, namespace)).items
    }
    for manifest in written:
        obj = object_of(limit_range.RESOURCE, manifest, namespace)
        assert isinstance(obj, LimitRange)
        ranges[manifest.name] = limit_range.default(obj)
    pods = (await connection.client.list(pod.RESOURCE, namespace)).items
    rows = [
        (found.pod, each.limit_range, each.message)
        for found in running_violations(bounds_of(ranges.values()), pods)
        for each in found.violations
    ]
    print(f"Namespace {namespace}, LimitRanges: {', '.join(sorted(ranges)) or '<none>'}\n")
    if rows:
        print(printers.table([EXISTING_HEAD, *rows]))
    else:
        print("No LimitRange is against a running pod.")
    return 1 if rows else 0


async def explain(connection: ApiSession, read: Sequence[Manifest], *, ask: bool) -> int:
    """Explain one manifest after the other; 1 if any would be refused."""
    concerned = [each for each in read if (each.api_version, each.kind) in _KINDS]
    if not concerned:
        raise Failure(
            "LimitRanges are about pods, claims and workloads, and the files hold none of them"
        )
    codes = [await _explain(connection, manifest, ask=ask) for manifest in concerned]
    return max(codes)


async def _explain(connection: ApiSession, manifest: Manifest, *, ask: bool) -> int:
    resource = _KINDS[manifest.api_version, manifest.kind]
    namespace = connection.namespace_of(manifest, resource)
    obj = object_of(resource, manifest, namespace)
    listing = await connection.client.list(limit_range.RESOURCE, namespace)
    found = explained(resource, obj, bounds_of(listing.items))
    names = ", ".join(sorted(each.metadata.name for each in listing.items)) or "<none>"
    print(f'{manifest.kind} "{manifest.name}", namespace {namespace}, LimitRanges: {names}\n')
    print(printers.table([HEAD, *found.rows]) if found.rows else "No container asks for anything.")
    print(f"\n{verdict(found.violations, obj)}\n", flush=True)
    if not ask:
        return 1 if found.violations else 0
    refused = await _asked(connection, resource, manifest, namespace)
    print(refused or "The server would accept it.", end="\n\n", flush=True)
    # A workload is accepted all the same; only its pods are not.
    return 1 if refused or (found.violations and template_of(obj)) else 0


async def _asked(
    connection: ApiSession, resource: Resource[Any], manifest: Manifest, namespace: str
) -> str:
    """Why the server would refuse the object; empty if it would not."""
    metadata = {**(manifest.document.get("metadata") or {}), "namespace": namespace}
    body = msgspec.json.encode({**manifest.document, "metadata": metadata})
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        await connection.client.send("POST", path_of(resource, namespace), query, body=body)
    except StatusError as error:
        return complaint(error, f'creating "{manifest.source}"')
    return ""


def object_of(resource: Resource[Any], manifest: Manifest, namespace: str) -> Object:
    """The manifest as an object, defaults not yet filled in; refused as the server would do it."""
    unknown: list[str] = []
    try:
        document = fit(resource.schema, manifest.document, unknown)
        metadata = {**document.get("metadata", {}), "namespace": namespace}
        obj: Object = resource.from_document({**document, "metadata": metadata})
    except (TypeMismatch, msgspec.ValidationError, ValueError) as error:
        raise _refused(resource, manifest, str(error)) from error
    if strange := [path for path in unknown if type(path) is not AsMapping]:
        fields = ", ".join(f'unknown field "{path}"' for path in strange)
        raise _refused(resource, manifest, f"strict decoding error: {fields}")
    return obj


def _refused(resource: Resource[Any], manifest: Manifest, why: str) -> ServerRefusal:
    return ServerRefusal(complaint(unreadable(resource, why), f'creating "{manifest.source}"'))


def explained(resource: Resource[Any], obj: Object, bounds: NamespaceLimits) -> LimitsExplanation:
    """Where the amounts of an object as it was written come from, and what is against them."""
    if isinstance(obj, PersistentVolumeClaim):
        claim = resource.strategy.default(obj)
        asked = claim.spec.resources.requests.items()
        rows = [(NOTHING, name, str(amount), MANIFEST, NOTHING, NOTHING) for name, amount in asked]
        return LimitsExplanation(rows, claim_violations(bounds, claim))
    written = obj.spec if isinstance(obj, Pod) else _template(obj)
    found = outcome(bounds, _new_pod(resource, obj))
    return LimitsExplanation([*_rows(written, found.pod, found.given)], found.violations)


def _template(obj: Object) -> PodSpec:
    template = template_of(obj)
    return PodSpec() if template is None else template.spec.spec


def _new_pod(resource: Resource[Any], obj: Object) -> Pod:
    """The pod as LimitRanger first sees it."""
    if isinstance(obj, Pod):
        return pod.RESOURCE.strategy.default(obj)
    template = template_of(resource.strategy.default(obj))
    return Pod() if template is None else pod_from(template.spec, obj.metadata.namespace)


def _rows(
    written: PodSpec, final: Pod, given: Iterable[DefaultedAmount]
) -> Iterator[tuple[str, ...]]:
    givers = {(g.container, g.bound, g.resource): g.limit_range for g in given}
    sorts = (
        ("", written.containers, final.spec.containers),
        ("init ", written.initContainers, final.spec.initContainers),
    )
    for sort, before, after in sorts:
        for own, filled in zip(before, after, strict=True):
            for row in _container_rows(own, filled, givers):
                yield f"{sort}{filled.name}", *row
    yield from _pod_rows(written, final)


def _container_rows(
    written: Container, final: Container, givers: Mapping[tuple[str, Bound, str], str]
) -> Iterator[tuple[str, ...]]:
    own, amounts = written.resources, final.resources
    for name in sorted({*amounts.requests, *amounts.limits}):
        giver = givers.get((final.name, "request", name))
        request_from = f"LimitRange {giver} defaultRequest" if giver else COPIED
        if name in own.requests:
            request_from = MANIFEST
        giver = givers.get((final.name, "limit", name))
        limit_from = f"LimitRange {giver} default" if giver else MANIFEST
        request, limit = amounts.requests.get(name), amounts.limits.get(name)
        yield name, *_cell(request, request_from), *_cell(limit, limit_from)


def _pod_rows(written: PodSpec, final: Pod) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the whole pod, which items of type Pod limit."""
    requests, limits = asked_together(final)
    own = written.resources or ResourceRequirements()
    filled = final.spec.resources or ResourceRequirements()
    for name in sorted({*requests, *limits}):
        request_from = _whole(name, own.requests, filled.requests)
        limit_from = _whole(name, own.limits, filled.limits)
        request, limit = requests.get(name), limits.get(name)
        yield POD_ROW, name, *_cell(request, request_from), *_cell(limit, limit_from)


def _whole(name: str, written: Amounts, filled: Amounts) -> str:
    if name in written:
        return MANIFEST
    return SERVER if name in filled else SUM


def _cell(amount: Quantity | None, source: str) -> tuple[str, str]:
    return (NOTHING, NOTHING) if amount is None else (str(amount), source)


def verdict(violations: Sequence[LimitRangeViolation], obj: Object) -> str:
    """Say whether LimitRanges would refuse the object, and why."""
    if not violations:
        return "No LimitRange is against it."
    whose = "Its pods" if template_of(obj) else "It"
    return "\n".join([f"{whose} would be refused:", *(f"* {each}" for each in violations)])
